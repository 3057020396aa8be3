// The families of models that can be imported.
#include "Families.h"

namespace xfc {

const std::vector<Family> &families() {
  static const std::vector<Family> known = {{{"marian"}, readMarian},
                                            {{"bart", "mbart"}, readBart},
                                            {{"m2m_100"}, readM2M100},
                                            {{"t5", "mt5", "umt5"}, readT5}};
  return known;
}

} // namespace xfc

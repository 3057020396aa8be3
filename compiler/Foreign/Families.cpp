// The families of models that can be imported and exported.
#include "Families.h"
#include "Describe.h"

namespace xfc {

const std::vector<Family> &families() {
  static const std::vector<Family> known = {{{"marian"}, readMarian, describeMarian},
                                            {{"bart", "mbart"}, readBart, describeStacks},
                                            {{"m2m_100"}, readM2M100, describeStacks},
                                            {{"t5", "mt5", "umt5"}, readT5, describeT5}};
  return known;
}

} // namespace xfc

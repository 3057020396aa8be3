// The families of models that can be imported.
#include "Families.h"

namespace xfc {

const std::vector<Family> &families() {
  static const std::vector<Family> known = {{{"marian"}, readMarian}, {{"bart", "mbart"}, readBart}};
  return known;
}

} // namespace xfc

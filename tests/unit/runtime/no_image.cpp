// Tests that bring their own images: the list a generated object would define is empty.
#include "xfc/abi.h"

extern "C" const xfc_image *const xfc_images[] = {nullptr};

// Defines the image list of an executable without generated code, whose tests bring their own images.
#include "xfc/abi.h"

extern "C" const xfc_image *const xfc_images[] = {nullptr};
extern "C" const xfc_device_image *const xfc_device_images[] = {nullptr};

#include "XFC.h"

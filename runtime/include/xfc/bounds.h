// What kernels call that `xfc compile --check-bounds` generates: before each access to memory, whether a kernel may
// make it. Defined by the runtime (device/cpu/Bounds.cpp); an access that is none of the call's ends the process with a
// message and status 1.
#ifndef XFC_BOUNDS_H
#define XFC_BOUNDS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// `rows` rows of `bytes` bytes each, `stride` bytes apart.
void xfc_check_rows(const void *at, int64_t rows, int64_t bytes, int64_t stride, int32_t writes);
// Elements of `bytes` bytes, side by side, those whose bit is set in `lanes`.
void xfc_check_lanes(const void *at, uint64_t lanes, int64_t bytes, int32_t writes);

#ifdef __cplusplus
}
#endif
#endif

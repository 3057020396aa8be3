// The contract between generated code and the runtime: what a kernel is called with, what a batch looks like,
// and how an executable presents its generated code. Plain C, no allocation, no ownership.
//
// Letters: B sequences, N rows (tokens), H heads, P (query, key) pairs, d features, V vocabulary.
#ifndef XFC_ABI_H
#define XFC_ABI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Raised whenever anything in this file changes meaning; an executable checks it at start.
#define XFC_ABI_VERSION 9

// The sets of rows a value may have. Rows are real tokens; there is no padding.
enum {
  XFC_SOURCE = 0, // the encoder's tokens
  XFC_TARGET = 1, // the decoder's tokens; while decoding, one row for each live hypothesis
  XFC_CACHE = 2,  // the slots of the decoding cache, one row each
  XFC_ROW_SETS = 3
};

// A ragged set of rows: sequence b owns the rows offsets[b] .. offsets[b+1]-1.
typedef struct xfc_rows {
  int64_t rows;               // N
  int64_t sequences;          // B
  const int32_t *offsets;     // [B+1]
  const int32_t *positions;   // [N] position of the row in its sequence, from 0
  const int32_t *sequence_of; // [N] the sequence that owns the row
  const uint32_t *sentences;  // [B] index of the sequence in the epoch: keys dropout, and nothing else
  const int32_t *by_id; // [N] row numbers ordered by token id, equal ids in row order; embedding gradients walk it. May
                        // be null in inference.
} xfc_rows;

// Tells which keys each query sees, as structure instead of a mask. The keys of query sequence b are the rows
// keys[begin[b]] .. keys[begin[b]+count[b]-1] of the key set, in ascending position. Query row i sees the
// first limit[i] of them: all for no mask, those at or before its own position for a causal one. Pad tokens
// are left out of the list where the mask drops padding. limit may be 0: such a row's result is 0.
typedef struct xfc_keys {
  const int32_t *keys;         // row numbers in the key set; lists may be shared by several sequences
  const int32_t *begin;        // [B of the query set]
  const int32_t *count;        // [B of the query set]
  const int32_t *limit;        // [N of the query set], 0 <= limit[i] <= count[sequence_of[i]]
  const int64_t *pair_offsets; // [B+1] sum of (query rows x count) of the sequences before b
  int64_t pairs;               // P = pair_offsets[B]
} xfc_keys;

// The key structures a batch may carry: (queries, keys) x drops padding x causal. See XFC_KEYS.
enum {
  XFC_SOURCE_SOURCE = 0,
  XFC_TARGET_TARGET = 1,
  XFC_TARGET_SOURCE = 2,
  XFC_TARGET_CACHE = 3,
  XFC_KEY_RELATIONS = 4
};
#define XFC_KEYS(relation, padding, causal) ((relation) * 4 + (padding) * 2 + (causal))
enum { XFC_KEY_STRUCTURES = XFC_KEY_RELATIONS * 4 };

// A pairs tensor with H heads is, for each sequence b and head h, a dense row-major block of
// (query rows of b) x count[b], at element pair_offsets[b]*H + h*(query rows of b)*count[b].

// One batch: all sizes a kernel needs at run time.
typedef struct xfc_shape {
  xfc_rows sets[XFC_ROW_SETS];
  xfc_keys keys[XFC_KEY_STRUCTURES]; // only those the program uses are filled in
  const int32_t *slots;              // [target rows] decoding: the cache row this step's keys, values and states go to
  const int32_t *before;   // [target rows] decoding: the cache row of the previous step, or -1 in the first one
  uint32_t dropout_key[2]; // derived from (seed, step)
  int32_t training;        // 0: every dropout is the identity
  int32_t reserved;
} xfc_shape;

// A tensor that a call takes in chunks of its own. Its last dimension is that of the columns; all others together are
// the rows.
typedef struct xfc_parted_tensor {
  int64_t first; // of its chunks among those of the call's tensors
  int64_t rows, columns;
  int64_t per, parts; // sums over rows are cut into `parts` parts of `per` rows, the last of which may be shorter
  int64_t matrix;     // its index among the call's tensors of two or more dimensions; -1: it has fewer
  int64_t group;      // the row of the operand `hyper` with which it is updated; -1: it is not updated
} xfc_parted_tensor;

// A weight that an optimizer packs once it has updated it: a matrix that begins at this element of those it updates.
typedef struct xfc_repacked_weight {
  int64_t first;
  int64_t rows, columns;
} xfc_repacked_weight;

// The argument of one call of a kernel. `buffers` are the operands of the op in order, followed by its results. A rows
// value with f features is row-major with a stride given in `strides` (elements; a column slice of a wider value has a
// stride larger than its width). Values that are not rows have stride 0.
typedef struct xfc_call {
  const xfc_shape *shape;
  const xfc_rows *rows;     // the set the work is divided over (attention: the queries')
  const xfc_rows *key_rows; // attention and pairs: the keys'; else equal to rows
  const xfc_keys *keys;     // attention and pairs; else null
  void *const *buffers;
  const int64_t *strides;
  int64_t dropout;  // the id of the random numbers that the op draws; 0 if it draws none
  int64_t elements; // ops over blocks of parameters: how many elements each has, or with `tensors`, chunks
  const xfc_parted_tensor *tensors; // ops that take tensors one by one; else null
  int64_t repacked_count;
  const xfc_repacked_weight *repacked; // null if there are none
} xfc_call;

// Runs one chunk of a call. Chunks are independent and may run in any order on any thread; results do not
// depend on how many there are. `scratch` is this thread's own, 64-byte aligned, of the kernel's scratch size.
// `previous` is the chunk of the same call that ran last with this scratch, and left there what it left; -1 if there is
// none.
typedef void (*xfc_kernel)(const xfc_call *call, int64_t chunk, int64_t previous, void *scratch);

// On a GPU a kernel is an entry `.visible .entry NAME(.param .u64 call)` of the image's module. `call` is the device
// address of an xfc_call in which all pointers, nested ones too, are device addresses. The call and everything it
// reaches except the buffers do not change while the kernel runs. A block has Kernel.threads threads and Kernel.scratch
// bytes of dynamic shared memory; block x of the grid runs chunk x. Sizes are read from memory, so a grid may be
// launched for the largest batch: a block whose chunk lies beyond those of this batch exits at once. If a kernel's
// Partition.times is above 1, chunk / times is the index along its unit and chunk % times the index of the part, so
// that surplus chunks come last. A pointer in `buffers` is a multiple of its element's size (blocks of memory start at
// multiples of 256 bytes); null is an operand that the op does not have, or a result that nothing reads. Kernels write
// only results, and no two kernels of a program run at the same time on one stream. If a reduction follows
// a kernel (Kernel.reduction), `buffers` ends with memory after the results: a part for each 2048 rows begun, in
// batches that have more rows than that. There the kernel leaves the partial sums that the reduction, which is called
// with the same arguments, adds up. The call of a pack kernel has buffers (the weight, its packed form) and strides of
// 0; the rest is null or 0.

// A persistent kernel of a GPU (Kernel.bodies) runs several calls in one launch, as its instructions. It is an entry
// with the same parameter, which is the device address of an xfc_step. Its blocks are launched cooperatively, in any
// number, and take the instructions in order. They take the chunks of an instruction in turn, once the instructions
// that it waits for have finished. All but the counters stays as it is while the kernel runs.
typedef struct xfc_wait {
  int32_t instruction; // an earlier one
  int32_t chunks;      // as many as that one has
} xfc_wait;
typedef struct xfc_instruction {
  const xfc_call *call;
  int32_t body;   // the index in Kernel.bodies of the kernel that is called
  int32_t chunks; // how many of its chunks run, at least 1: as many blocks as it would be launched with
  // [wait_count] instructions that must have finished: directly or through others, these are all that write what this
  // one reads or writes, or that read what it writes.
  const xfc_wait *waits;
  int64_t wait_count;
  // The buffer of a later instruction's call with a weight, which no instruction writes: before they wait, all blocks
  // together have the L2 cache fetch so many of its bytes.
  void *const *weight;
  int64_t weight_bytes; // 0: there is none
} xfc_instruction;
typedef struct xfc_step {
  int64_t count;
  const xfc_instruction *instructions; // [count]
  // [count + 1] how many chunks of each instruction have finished, and how many blocks have left. The host sets all to
  // 0 once: the last block that leaves sets them to 0 again, because nobody waits any more.
  uint32_t *finished;
} xfc_step;

// Generated code for one instruction set. `plan` is the serialized xfc::Module (runtime/plan/Plan.h).
typedef struct xfc_image {
  uint32_t abi_version;
  uint32_t kernel_count;
  const char *cpu;      // "x86-64-v3", "x86-64-v4", or the name of the CPU it was built on
  const char *features; // what the CPU must have, separated by commas, in the names of /proc/cpuinfo
  const xfc_kernel *kernels;
  const uint8_t *plan;
  uint64_t plan_size;
} xfc_image;

// The images of this executable, best first; the last entry is null. Defined by a generated object.
extern const xfc_image *const xfc_images[];

// Generated code for one GPU architecture, with a plan of its own: partitions, scratch and packed weights differ from a
// CPU's, and programs exist only in the types that a GPU multiplies in. The driver compiles the PTX when it is loaded;
// the cubin, if there is one, is the same code compiled ahead of time.
typedef struct xfc_device_image {
  uint32_t abi_version;
  uint32_t kernel_count;
  const char *arch; // "sm_80": PTX runs on this compute capability (8.0) and every later one, a cubin on 8.0 up to 8.9.
                    // "sm_90a": on 9.0 alone
  const char *ptx;  // ends with a zero byte
  uint64_t ptx_size;    // without it
  const uint8_t *cubin; // may be null
  uint64_t cubin_size;
  const uint8_t *plan;
  uint64_t plan_size;
} xfc_device_image;

// The GPU images of this executable, the newest architecture first; the last entry is null. Defined by a generated
// object. An executable that has only GPU images has an empty xfc_images.
extern const xfc_device_image *const xfc_device_images[];

// Dropout. A value with op id `op` has a random number of 16 bits for each element: for a row and a feature, or for an
// attention weight, that is for a query, a key and a head. The element is kept when the number is at least
// floor(rate * 2^16), and then multiplied by 1/(1-rate). The number of the feature i, or of the key at position i of
// its sequence, is the lower half of word (i % 64) / 16 if i % 16 is less than 8, and else the upper one. The words are
// those of Philox4x32 with 7 rounds (Salmon et al., SC 2011), with the key (dropout_key[0] ^ op, dropout_key[1]) and
// the counter ((i / 64) * 8 + i % 8, position of the row or query, its sentence, 0 for a row or 1 + head).
static inline void xfc_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
  uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
  for (int round = 0; round < 7; ++round) {
    uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
    uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c1 = (uint32_t)p1;
    c3 = (uint32_t)p0;
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}

static inline uint32_t xfc_random(const uint32_t dropout_key[2], uint32_t op, uint32_t sentence, uint32_t position,
                                  uint32_t element, uint32_t head_plus_one) {
  uint32_t counter[4] = {element / 64 * 8 + element % 8, position, sentence, head_plus_one};
  uint32_t key[2] = {dropout_key[0] ^ op, dropout_key[1]}, out[4];
  xfc_philox(counter, key, out);
  return out[element % 64 / 16] >> (element % 16 / 8 * 16) & 0xffffu;
}
static inline uint32_t xfc_threshold(double rate) { return (uint32_t)(rate * 65536); } // 0 <= rate < 1

#ifdef __cplusplus
}
#endif
#endif

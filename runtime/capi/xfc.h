/* What a library does that `xfc compile MODEL --emit lib -o NAME` made: the C interface of libNAME.so and libNAME.a,
 * the same for all models. docs/library.md shows how it is used.
 *
 * Errors. A function that can fail returns a status. What went wrong, where, and what to do is a line of text that
 * xfc_message() gives. Nothing is printed, no signal is handled, and the process is never ended.
 *
 * Threads. Handles share nothing: any number of models may be open and used at the same time. Calls on one model, and
 * on the searches and trainings of it, may come from any thread and wait for each other. The work of a call is done by
 * the calling thread and the model's own threads. In a child that fork() made, no handle may be used.
 *
 * Options are words as the executable's command line takes them, in an array that ends with a null pointer; null stands
 * for none: (const char *const[]){"--beam", "4", NULL}. `translator VERB --help` lists them.
 *
 * Text is UTF-8. A line ends with a zero byte and holds no line's end. It is text, pieces or ids, as --format of
 * xfc_open() says. Pointers to what a function gives belong to the library. */
#ifndef XFC_H
#define XFC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define XFC_API __attribute__((visibility("default")))
#else
#define XFC_API
#endif

/* Raised when a function takes or gives something else than before. xfc_api_version() is that of the library, which has
 * to be the one of the header. */
#define XFC_API_VERSION 1

typedef enum xfc_status {
  XFC_OK = 0,
  XFC_FAILED = 1,       /* a file, a line or an option is wrong: xfc_message() says which, and why */
  XFC_MISUSE = 2,       /* a null pointer where none may be, or an index out of range */
  XFC_OUT_OF_MEMORY = 3 /* of which the system has no more */
} xfc_status;

typedef struct xfc_model xfc_model;       /* weights and vocabularies, and what computes with them */
typedef struct xfc_search xfc_search;     /* translations that are being searched for, or have been found */
typedef struct xfc_training xfc_training; /* an optimizer of a model */

XFC_API int xfc_api_version(void);
XFC_API const char *xfc_version(void); /* of xfc: "0.1.0" */

/* Opens a model. `path` is a folder that `train` or `xfc import` made, a file of weights (safetensors), or an
 * executable of this model that `pack` wrote, with weights and vocabulary inside; null, where the options name no
 * weights either, begins with the random weights that `train` begins with. The file stays mapped while the model is
 * open: replace it by renaming another, and never write into it. Options: --vocab, --target-vocab, --format, --threads,
 * --device, and others of `translate`; not those of the search. Where it fails, *model is a handle that only gives its
 * message and is closed, or null where there is no memory. */
XFC_API xfc_status xfc_open(const char *path, const char *const *options, xfc_model **model);
/* Null is nothing to close. Searches and trainings of the model stay until they are closed, and hold what they need. */
XFC_API void xfc_close(xfc_model *model);

/* Of the last call that failed, on the model or a search or training of it; "" where none has. It stays until the next
 * call that fails. Null: "". */
XFC_API const char *xfc_message(const xfc_model *model);
/* What was done all the same when lines were read last, a line each, as "line 3: cut to the first 512 tokens, the
 * model's max_length"; "" for nothing. */
XFC_API const char *xfc_warnings(const xfc_model *model);

typedef struct xfc_info {
  const char *name;                             /* of model.json */
  const char *hash;                             /* of what it computes: SHA-256 of the canonical model.json */
  int64_t parameters;                           /* numbers that are trained */
  int64_t source_vocabulary, target_vocabulary; /* ids are 0 to so many less one */
  int64_t longest_source, longest_target;       /* tokens; 0: any number */
  int32_t pad, start, eos;                      /* ids */
} xfc_info;

XFC_API xfc_status xfc_describe(xfc_model *model, xfc_info *info);

typedef enum xfc_side { XFC_SIDE_SOURCE = 0, XFC_SIDE_TARGET = 1 } xfc_side;

/* The ids of a line, with what the model wants around them (eos, or its tokenizer's frame), as the verb `encode` gives
 * them. *count becomes their number, of which the first `room` are written to `ids`. */
XFC_API xfc_status xfc_encode(xfc_model *model, xfc_side side, const char *line, int32_t *ids, size_t room,
                              size_t *count);
/* The text of ids, as the verb `decode` gives it. *size becomes its size in bytes, without the zero byte that ends it;
 * at most `room` bytes are written to `text`, the zero byte among them. */
XFC_API xfc_status xfc_decode(xfc_model *model, xfc_side side, const int32_t *ids, size_t count, char *text,
                              size_t room, size_t *size);

/* Translates `count` lines, as the verb `translate` does: with the same options the same text, scores and ids, whatever
 * lines come together. `prefixes` are forced beginnings of the translations, one for each line; null, or null for a
 * line, forces none. Options: --beam, --n-best, --length-penalty, --sample, --compute-type, and others of the search.
 * What is not given is as model.json says. *search holds the translations until it is closed. */
XFC_API xfc_status xfc_translate(xfc_model *model, const char *const *lines, const char *const *prefixes, size_t count,
                                 const char *const *options, xfc_search **search);

/* The same, a token at a time: xfc_search_start() encodes the lines, and each step of xfc_search_advance() lets every
 * hypothesis of the lines that run grow by one token. In the end there is what xfc_translate() gives. Of many lines
 * some may wait for others to end. Any number of searches may be under way on a model. */
XFC_API xfc_status xfc_search_start(xfc_model *model, const char *const *lines, const char *const *prefixes,
                                    size_t count, const char *const *options, xfc_search **search);
/* At most `steps` steps. *running becomes 1 while there are lines that have not ended, else 0. */
XFC_API xfc_status xfc_search_advance(xfc_search *search, size_t steps, int *running);

typedef struct xfc_hypothesis {
  const char *text; /* a line, ending with a zero byte */
  size_t size;      /* of the text in bytes, without it */
  const int32_t *ids;
  size_t count;           /* of ids, which are without start and eos */
  double score;           /* with the length penalty */
  double log_probability; /* natural logarithm */
} xfc_hypothesis;

/* Of line `line`, from 0. *count becomes the number of its hypotheses: --n-best or fewer where it has ended, those that
 * live where it has not, 0 where it waits. *ended becomes 1 where it has ended. An empty line has one, which is empty.
 */
XFC_API xfc_status xfc_search_line(xfc_search *search, size_t line, size_t *count, int *ended);
/* Number `rank` of them, from 0, the best first. The pointers hold until the search advances or is closed. */
XFC_API xfc_status xfc_search_hypothesis(xfc_search *search, size_t line, size_t rank, xfc_hypothesis *hypothesis);
XFC_API void xfc_search_close(xfc_search *search);

/* The log-probability of each target line given its source line, eos counted, as the verb `score` gives it. */
XFC_API xfc_status xfc_score(xfc_model *model, const char *const *sources, const char *const *targets, size_t count,
                             double *log_probabilities);

/* Logits as the verb `forward` gives them. `source` is [batch, source_columns], and `target`, what the decoder reads
 * (start first), is [batch, target_columns]; shorter lines end with pad. `logits` is
 * [batch, target_columns, target_vocabulary], with 0 where trailing pads are. */
XFC_API xfc_status xfc_forward(xfc_model *model, size_t batch, const int32_t *source, size_t source_columns,
                               const int32_t *target, size_t target_columns, float *logits);

/* Trains the model in place. A training begins with an optimizer that has seen nothing; a model has one at a time.
 * Options: --optimizer, --betas, --weight-decay, --clip-norm, --label-smoothing, --seed, and others of a step of
 * `train`. */
XFC_API xfc_status xfc_training_start(xfc_model *model, const char *const *options, xfc_training **training);

typedef struct xfc_loss {
  int64_t step;   /* its number, from 1 */
  int64_t labels; /* target tokens, eos counted */
  double loss;    /* mean per label, with label smoothing: what is made smaller */
  double nll;     /* mean per label, without */
  double norm;    /* of the gradient, before it is clipped */
} xfc_loss;

/* One step with this learning rate over `count` pairs of lines, as one batch: the step that `train` takes of the same
 * pairs in the same order. Pairs that are empty or too long for the model are left out, with a warning. Where the loss
 * is not finite it fails, and the weights are lost. */
XFC_API xfc_status xfc_training_step(xfc_training *training, const char *const *sources, const char *const *targets,
                                     size_t count, double rate, xfc_loss *loss);
XFC_API void xfc_training_close(xfc_training *training);

/* Writes the weights to a file, whole or not at all, for xfc_open() or the executable's --weights. */
XFC_API xfc_status xfc_save(xfc_model *model, const char *file);

#ifdef __cplusplus
}
#endif
#endif

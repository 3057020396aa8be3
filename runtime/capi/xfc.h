/* The C interface of libNAME.so and libNAME.a, which `xfc compile MODEL --emit lib -o NAME` produces. It is the same
 * for all models. docs/library.md shows how to use it.
 *
 * Errors. A function that can fail returns a status. xfc_message() gives a line of text that says what went wrong,
 * where, and what to do. The library prints nothing, handles no signals, and never ends the process.
 *
 * Threads. Models are independent: any number of them may be open and in use at the same time. Calls on one model, and
 * on its searches and trainings, may come from any thread; they are serialized. xfc_share() gives models that share
 * their weights, for calls that run at the same time. The work of a call is done by the calling thread and the model's
 * own threads. After fork(), the child must not use any handle.
 *
 * Options are words as on the executable's command line, in an array that ends with a null pointer; a null array means
 * no options: (const char *const[]){"--beam", "4", NULL}. `translator VERB --help` lists them.
 *
 * Text is UTF-8. A line ends with a zero byte and contains no newline. It is text, pieces or ids, depending on the
 * --format given to xfc_open(). The library owns what the pointers it returns point to. */
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

/* Raised when the arguments or results of a function change. xfc_api_version() gives the library's version, which must
 * equal the header's. */
#define XFC_API_VERSION 1

typedef enum xfc_status {
  XFC_OK = 0,
  XFC_FAILED = 1,       /* a file, a line or an option is wrong: xfc_message() says which, and why */
  XFC_MISUSE = 2,       /* a null pointer where none may be, or an index out of range */
  XFC_OUT_OF_MEMORY = 3 /* the system has no more memory */
} xfc_status;

typedef struct xfc_model xfc_model;       /* weights, vocabularies, and the code that computes with them */
typedef struct xfc_search xfc_search;     /* translations being searched for, or found */
typedef struct xfc_training xfc_training; /* an optimizer at work on a model */

XFC_API int xfc_api_version(void);
XFC_API const char *xfc_version(void); /* of xfc: "0.1.0" */

/* Opens a model. `path` is a folder that `train` or `xfc import` made, a file of weights (safetensors), or an
 * executable of this model that `pack` wrote, with weights and vocabulary inside. If it is null and the options name no
 * weights either, the model has the random weights that `train` starts from. The file stays memory-mapped while the
 * model is open: replace it by renaming another file over it, and never write into it. Options: --vocab,
 * --target-vocab, --format, --threads, --device, and others of `translate`, but not those of the search. With --model,
 * once or several times, further models decode together with the one at `path`, as an ensemble, which cannot be
 * trained, saved, or given to xfc_forward(); --ensemble-library names the libraries of those that are of another
 * description. --draft, --rescore and --shortlist need weights. On failure, *model is a handle that can only be passed
 * to xfc_message() and xfc_close(), or null if there is no memory.
 */
XFC_API xfc_status xfc_open(const char *path, const char *const *options, xfc_model **model);
/* Opens another handle on a model, with the same options. Both have the same weights, which are in memory once, and the
 * packed forms of these too; each has threads, memory for its calls, and messages of its own, so calls on the two run
 * at the same time. On a CPU only. As long as there are several, none can be trained. Each is closed by itself, in any
 * order. If the call fails, the message is that of `model`. */
XFC_API xfc_status xfc_share(xfc_model *model, xfc_model **other);
/* Null is allowed. Searches and trainings of the model stay usable until they are closed themselves. */
XFC_API void xfc_close(xfc_model *model);

/* The message of the last failed call on the model or on one of its searches or trainings; "" if none has failed, or
 * for null. The text stays valid until the next call that fails. */
XFC_API const char *xfc_message(const xfc_model *model);
/* The warnings about the lines that were read last, one per line, such as "line 3: cut to the first 512 tokens, the
 * model's max_length"; "" if there are none. */
XFC_API const char *xfc_warnings(const xfc_model *model);

typedef struct xfc_info {
  const char *name;                             /* of model.json */
  const char *hash;                             /* of the model: SHA-256 of the canonical model.json */
  int64_t parameters;                           /* number of trained values */
  int64_t source_vocabulary, target_vocabulary; /* sizes; ids run from 0 to size - 1 */
  int64_t longest_source, longest_target;       /* in tokens; 0: unlimited */
  int32_t pad, start, eos;                      /* ids; pad is -1 in a model without such a token */
} xfc_info;

XFC_API xfc_status xfc_describe(xfc_model *model, xfc_info *info);

typedef enum xfc_side { XFC_SIDE_SOURCE = 0, XFC_SIDE_TARGET = 1 } xfc_side;

/* The ids of a line, as the verb `encode` gives them: with what the model expects around them (eos, or its tokenizer's
 * frame). *count is set to their number; the first `room` of them are written to `ids`. */
XFC_API xfc_status xfc_encode(xfc_model *model, xfc_side side, const char *line, int32_t *ids, size_t room,
                              size_t *count);
/* The text of ids, as the verb `decode` gives it. *size is set to its size in bytes, without the terminating zero byte;
 * at most `room` bytes are written to `text`, including the zero byte. */
XFC_API xfc_status xfc_decode(xfc_model *model, xfc_side side, const int32_t *ids, size_t count, char *text,
                              size_t room, size_t *size);

/* Translates `count` lines, as the verb `translate` does: the same options give the same text, scores and ids, whatever
 * other lines are translated together. `prefixes` are forced beginnings of the translations, one for each line; null,
 * or null for a line, forces none. Options: --beam, --n-best, --length-penalty, --sample, --compute-type, and others of
 * the search; the defaults are those of model.json. *search holds the translations until it is closed. */
XFC_API xfc_status xfc_translate(xfc_model *model, const char *const *lines, const char *const *prefixes, size_t count,
                                 const char *const *options, xfc_search **search);

/* The same, with what the translations must contain: for each line, what a line of `translate --constraints` says, such
 * as "Apfelbaum\tRind || Kuh" for the first word and one of the others; null, or null for a line: nothing. */
XFC_API xfc_status xfc_translate_constrained(xfc_model *model, const char *const *lines, const char *const *prefixes,
                                             const char *const *constraints, size_t count, const char *const *options,
                                             xfc_search **search);

/* The same, a token at a time: xfc_search_start() encodes the lines, and each step of xfc_search_advance() extends
 * every hypothesis of the running lines by one token. The final result is that of xfc_translate(). If there are many
 * lines, some wait until others have ended. Any number of searches may be in progress on a model. */
XFC_API xfc_status xfc_search_start(xfc_model *model, const char *const *lines, const char *const *prefixes,
                                    size_t count, const char *const *options, xfc_search **search);
XFC_API xfc_status xfc_search_start_constrained(xfc_model *model, const char *const *lines, const char *const *prefixes,
                                                const char *const *constraints, size_t count,
                                                const char *const *options, xfc_search **search);
/* Takes at most `steps` steps. *running is set to 1 if there are lines that have not ended, else to 0. */
XFC_API xfc_status xfc_search_advance(xfc_search *search, size_t steps, int *running);

typedef struct xfc_hypothesis {
  const char *text; /* one line, terminated by a zero byte */
  size_t size;      /* of the text in bytes, without the zero byte */
  const int32_t *ids;
  size_t count;           /* number of ids, without start and eos */
  double score;           /* includes the length penalty */
  double log_probability; /* natural logarithm */
} xfc_hypothesis;

/* The state of line `line`, counted from 0. *count is set to the number of its hypotheses: at most --n-best if it has
 * ended, the live ones if it is running, 0 if it waits. *ended is set to 1 if it has ended, else to 0. An empty line
 * has one hypothesis, which is empty. */
XFC_API xfc_status xfc_search_line(xfc_search *search, size_t line, size_t *count, int *ended);
/* The hypothesis of rank `rank`, from 0, the best first. The pointers are valid until the search advances or is closed.
 */
XFC_API xfc_status xfc_search_hypothesis(xfc_search *search, size_t line, size_t rank, xfc_hypothesis *hypothesis);
/* With the option --token-scores: the log-probability of each of the hypothesis's ids, and of eos if it follows.
 * Without it, *count is set to 0. */
XFC_API xfc_status xfc_search_token_scores(xfc_search *search, size_t line, size_t rank,
                                           const double **log_probabilities, size_t *count);
/* With the option --alignments=soft: [targets, sources], the probability with which each of the ids, and eos if it
 * follows, attends to each token of the source line as xfc_encode() gives it. Without it, both are set to 0. What
 * `translate --alignments` writes is the largest of each row, among those of the line's own tokens. */
XFC_API xfc_status xfc_search_attention(xfc_search *search, size_t line, size_t rank, const double **probabilities,
                                        size_t *targets, size_t *sources);
/* Of a model that was opened with --rescore, and a line that has ended: the log-probability by the model that rescores.
 * Otherwise, and for an empty line, *log_probability is set to NaN. */
XFC_API xfc_status xfc_search_rescored(xfc_search *search, size_t line, size_t rank, double *log_probability);
XFC_API void xfc_search_close(xfc_search *search);

/* The log-probability of each target line given its source line, eos included, as the verb `score` gives it. */
XFC_API xfc_status xfc_score(xfc_model *model, const char *const *sources, const char *const *targets, size_t count,
                             double *log_probabilities);

/* Logits as the verb `forward` gives them. `source` is [batch, source_columns]; `target`, which the decoder reads
 * (start first), is [batch, target_columns]; shorter lines are padded with pad as xfc_info has it, at their end if that
 * is -1, which is no id anywhere else. `logits` is [batch, target_columns, target_vocabulary], with 0 at trailing
 * pads. */
XFC_API xfc_status xfc_forward(xfc_model *model, size_t batch, const int32_t *source, size_t source_columns,
                               const int32_t *target, size_t target_columns, float *logits);

/* Trains the model in place. A training begins with fresh optimizer states; a model can have one training at a time.
 * Options: --optimizer, --betas, --weight-decay, --clip-norm, --label-smoothing, --seed, and others of a step of
 * `train`. */
XFC_API xfc_status xfc_training_start(xfc_model *model, const char *const *options, xfc_training **training);

typedef struct xfc_loss {
  int64_t step;   /* its number, from 1 */
  int64_t labels; /* target tokens, eos included */
  double loss;    /* mean per label, with label smoothing: what training minimizes */
  double nll;     /* mean per label, without label smoothing */
  double norm;    /* of the gradient, before it is clipped */
} xfc_loss;

/* Takes one step with this learning rate over `count` pairs of lines, as one batch: the step that `train` takes for the
 * same pairs in the same order. Pairs that are empty or too long for the model are left out, with a warning. If the
 * loss or the norm of the gradient is not finite, the call fails and fills `loss` nevertheless. On the CPU, such a step
 * is not taken and has no number: weights and optimizer states stay as they were. On a GPU, the weights are lost, which
 * the message says. */
XFC_API xfc_status xfc_training_step(xfc_training *training, const char *const *sources, const char *const *targets,
                                     size_t count, double rate, xfc_loss *loss);
XFC_API void xfc_training_close(xfc_training *training);

/* Writes the weights to a file for xfc_open() or the executable's --weights. The file is renamed into place when it is
 * complete. */
XFC_API xfc_status xfc_save(xfc_model *model, const char *file);

#ifdef __cplusplus
}
#endif
#endif

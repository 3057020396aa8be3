/* Translates lines of standard input with a library that `xfc compile MODEL --emit lib -o NAME` made.
 *
 *     cc translate.c -LDIR -lNAME -Wl,-rpath,DIR -o translate      # with libNAME.so
 *     cc translate.c DIR/libNAME.a -lm -o translate                # or with libNAME.a
 *     ./translate MODEL [--beam 4 ...] < lines > translations
 *
 * MODEL is a folder that `train` made. The options are those of the verb `translate` that say how is searched. Each
 * line is translated by itself, and what is written of it so far goes to standard error at every step. */
#include "xfc.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static xfc_model *model;

/* Ends the program where a call has failed. */
static void check(xfc_status status) {
  if (status == XFC_OK)
    return;
  fprintf(stderr, "error: %s\n", status == XFC_OUT_OF_MEMORY ? "out of memory" : xfc_message(model));
  exit(1);
}

static void translate(const char *line, const char *const *options) {
  xfc_search *search;
  check(xfc_search_start(model, &line, NULL, 1, options, &search));
  xfc_hypothesis best;
  for (int running = 1; running;) {
    check(xfc_search_advance(search, 1, &running));
    check(xfc_search_hypothesis(search, 0, 0, &best));
    fprintf(stderr, "\r%s", best.text);
  }
  fprintf(stderr, "\n");
  fwrite(best.text, 1, best.size, stdout);
  putchar('\n');
  xfc_search_close(search);
}

int main(int argc, char **argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: %s MODEL [OPTION...] < lines\n", argv[0]);
    return 2;
  }
  if (xfc_api_version() != XFC_API_VERSION) {
    fprintf(stderr, "error: the library has version %d of the interface, this program was made for %d\n",
            xfc_api_version(), XFC_API_VERSION);
    return 1;
  }
  check(xfc_open(argv[1], NULL, &model));
  const char *const *options = (const char *const *)argv + 2; /* argv ends with a null pointer */
  char *line = NULL;
  size_t room = 0;
  while (getline(&line, &room, stdin) > 0) {
    line[strcspn(line, "\n")] = '\0';
    translate(line, options);
  }
  free(line);
  xfc_close(model);
  return 0;
}

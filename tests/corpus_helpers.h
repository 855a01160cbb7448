/* What the tests of text/dataset/ share: a directory with files for every test, expected documents and errors. */
#ifndef INKLING_TESTS_CORPUS_HELPERS_H
#define INKLING_TESTS_CORPUS_HELPERS_H

#include "base/file.h"
#include "base/path.h"
#include "text/dataset/corpus.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* After the project's headers: cmocka.h makes fail() a macro. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { PATHS = 64 };

typedef struct Fixture {
  char dir[64];
  char *paths[PATHS]; /* what at() returned last */
  int next;
} Fixture;

static inline int set_up(void **state) {
  Fixture *f = calloc(1, sizeof *f);
  assert_non_null(f);
  snprintf(f->dir, sizeof f->dir, "/tmp/inkling-corpus-XXXXXX");
  assert_non_null(mkdtemp(f->dir));
  *state = f;
  return 0;
}

static inline void remove_tree(const char *dir) {
  DIR *entries = opendir(dir);
  assert_non_null(entries);
  for (struct dirent *entry; (entry = readdir(entries));) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    const PathText path = path_in(dir, entry->d_name);
    if (unlink(path.text) != 0) remove_tree(path.text);
  }
  closedir(entries);
  assert_int_equal(rmdir(dir), 0);
}

static inline int tear_down(void **state) {
  Fixture *f = *state;
  remove_tree(f->dir);
  for (int i = 0; i < PATHS; i++) free(f->paths[i]);
  free(f);
  return 0;
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

/* Path of a name in the fixture's directory; valid for PATHS - 1 more calls. */
static inline const char *at(Fixture *f, const char *name) {
  char **path = &f->paths[f->next++ % PATHS];
  free(*path);
  *path = strdup(path_in(f->dir, name).text);
  assert_non_null(*path);
  return *path;
}

static inline const char *put(Fixture *f, const char *name, const void *bytes, size_t size) {
  const char *path = at(f, name);
  unlink(path); /* a file that is cut to be filled again goes to the disk at once */
  FILE *stream = fopen(path, "wb");
  assert_non_null(stream);
  assert_int_equal(fwrite(bytes, 1, size, stream), size);
  assert_int_equal(fclose(stream), 0);
  return path;
}

static inline const char *put_text(Fixture *f, const char *name, const char *text) {
  return put(f, name, text, strlen(text));
}

static inline const char *make_dir(Fixture *f, const char *name) {
  const char *path = at(f, name);
  assert_int_equal(mkdir(path, 0777), 0);
  return path;
}

static inline Corpus *open_with(const char *const *sources, int count, const CorpusOptions *options) {
  Error error = {0};
  Corpus *corpus = NULL;
  if (!corpus_open(&corpus, sources, count, options, &error)) fail_msg("%s", error.text);
  assert_non_null(corpus);
  return corpus;
}

static inline Corpus *open_one(const char *source) { return open_with(&source, 1, NULL); }

static inline Document next(Corpus *corpus) {
  Error error = {0};
  Document document;
  if (!corpus_next(corpus, &document, &error)) fail_msg("%s", error.text);
  assert_true(!document.text || document.size > 0);
  return document;
}

static inline void expect_text(Corpus *corpus, const void *text, size_t size) {
  Document document = next(corpus);
  assert_non_null(document.text);
  assert_int_equal(document.size, size);
  assert_memory_equal(document.text, text, size);
}

static inline void expect_end(Corpus *corpus) {
  assert_null(next(corpus).text);
  assert_int_equal(corpus_position(corpus), corpus_bytes(corpus));
  assert_null(next(corpus).text);
}

/* All documents, each followed by a '$'; a prompt by a '|'. Closes the corpus. */
static inline void expect_documents(Corpus *corpus, const char *expected) {
  char shown[4096];
  size_t used = 0;
  for (Document d; (d = next(corpus)).text;) {
    assert_true(used + d.size + 3 < sizeof shown);
    memcpy(shown + used, d.text, d.prompt);
    used += d.prompt;
    if (d.prompt > 0) shown[used++] = '|';
    memcpy(shown + used, d.text + d.prompt, d.size - d.prompt);
    used += d.size - d.prompt;
    shown[used++] = '$';
  }
  shown[used] = '\0';
  assert_string_equal(shown, expected);
  expect_end(corpus);
  corpus_close(corpus);
}

static inline void expect_error(const Error *error, ExitCode code, const char *part) {
  if (error->code != code || !strstr(error->text, part))
    fail_msg("code %d, \"%s\" lacks \"%s\"", (int)error->code, error->text, part);
  for (const char *c = error->text; *c; c++) assert_true((unsigned char)*c >= 0x20 && *c != 0x7f);
}

static inline void refuse_with(const char *const *sources, int count, const CorpusOptions *options, ExitCode code,
                               const char *part) {
  Error error = {0};
  Corpus *corpus = (Corpus *)&error;
  assert_false(corpus_open(&corpus, sources, count, options, &error));
  assert_null(corpus);
  expect_error(&error, code, part);
}

/* The error of the first document that has one. */
static inline Error first_error(Corpus *corpus) {
  Error error = {0};
  for (Document d;;) {
    bool ok = corpus_next(corpus, &d, &error);
    if (ok && !d.text) fail_msg("no error up to the end");
    if (ok) continue;
    assert_null(d.text);
    return error;
  }
}

#endif

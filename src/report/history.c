#include "report/history.h"

#include "base/array.h"
#include "base/file.h"
#include "base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- points ---- */

static HistoryPoint point_of(const MetricsLine *line, const HistoryPoint *before) {
  const double loss = line->loss, tokens = (double)(line->tokens - (before ? before->tokens : 0));
  const bool timed = isfinite(line->tokens_per_s) && line->tokens_per_s > 0 && tokens > 0;
  return (HistoryPoint){.lines = 1,
                        .step = line->step,
                        .tokens = line->tokens,
                        .seconds = line->seconds,
                        .loss = loss,
                        .least = loss,
                        .most = isnan(loss) ? INFINITY : loss,
                        .lr = line->lr,
                        .grad_norm = line->grad_norm,
                        .tokens_per_s = line->tokens_per_s,
                        .timed_tokens = timed ? tokens : 0,
                        .timed_seconds = timed ? tokens / line->tokens_per_s : 0};
}

/* Returns the mean of `a_lines` lines with mean `a` and `b_lines` lines with mean `b`. One mean may be NaN. */
static double joint_mean(double a, int64_t a_lines, double b, int64_t b_lines) {
  if (isnan(a)) return b;
  return isnan(b) ? a : (a * (double)a_lines + b * (double)b_lines) / (double)(a_lines + b_lines);
}

/* Merges `b`, the point after `a`, into `a`. fmin() and fmax() ignore NaN. */
static void join(HistoryPoint *a, const HistoryPoint *b) {
  a->loss = joint_mean(a->loss, a->lines, b->loss, b->lines);
  a->timed_tokens += b->timed_tokens;
  a->timed_seconds += b->timed_seconds;
  a->tokens_per_s = a->timed_seconds > 0 ? a->timed_tokens / a->timed_seconds : NAN;
  a->least = fmin(a->least, b->least);
  a->most = fmax(a->most, b->most);
  a->grad_norm = fmax(a->grad_norm, b->grad_norm);
  a->lines += b->lines;
  a->step = b->step;
  a->tokens = b->tokens;
  a->seconds = b->seconds;
  a->lr = b->lr;
}

static void halve(History *h) {
  for (int i = 0; i < h->count / 2; i++) {
    h->points[i] = h->points[2 * i];
    join(&h->points[i], &h->points[2 * i + 1]);
  }
  h->count /= 2;
  h->lines_a_point *= 2;
}

static bool add_point(History *h, const MetricsLine *line, Error *error) {
  if (!h->points) {
    h->points = calloc(HISTORY_POINTS, sizeof *h->points);
    h->lines_a_point = 1;
    if (!h->points) return error_memory(error, "the history of a run");
  }
  HistoryPoint *last = h->count ? &h->points[h->count - 1] : NULL;
  const HistoryPoint point = point_of(line, last);
  if (last && line->step <= last->step) {
    h->damaged++;
    return true;
  }
  h->last_loss = line->loss;
  if (last && last->lines < h->lines_a_point) {
    join(last, &point);
    return true;
  }
  if (h->count == HISTORY_POINTS) halve(h);
  h->points[h->count++] = point;
  return true;
}

/* ---- evaluations and diagnoses ---- */

static bool is_known(const MetricsLine *evaluation) { return evaluation->kind != METRICS_STEPS; }

static bool add_evaluation(History *h, const MetricsLine *line, Error *error) {
  const MetricsLine *last = h->evaluation_count ? &h->evaluations[h->evaluation_count - 1] : NULL;
  MetricsLine now = *line;
  now.best = now.best && isfinite(now.val_loss);
  if (line->val_text) h->val_text = line->val_text;
  if (line->chance > 0) h->chance = line->chance;
  if (last && line->step <= last->step) {
    /* a second one of the last step, on all of the validation text; the first one used only its beginning */
    const bool again = is_known(&h->at_end) && h->at_end.step == now.step;
    const bool at_end = now.step == last->step && now.all && !last->all && !again;
    if (at_end) h->at_end = now;
    if (at_end && is_known(&h->kept) && h->kept.step == now.step) h->kept = now;
    h->damaged += !at_end;
    return true;
  }
  if (!array_reserve(&h->evaluations, &h->evaluation_capacity, h->evaluation_count + 1, sizeof *h->evaluations))
    return error_memory(error, "the history of a run");
  h->evaluations[h->evaluation_count++] = now;
  if (now.best) h->kept = now;
  return true;
}

static bool add_diagnosis(History *h, const MetricsLine *line, Error *error) {
  if (!array_reserve(&h->diagnoses, &h->diagnosis_capacity, h->diagnosis_count + 1, sizeof *h->diagnoses))
    return error_memory(error, "the history of a run");
  h->diagnoses[h->diagnosis_count++] = *line;
  return true;
}

/* ---- lines ---- */

bool history_add(History *history, const MetricsLine *line, Error *error) {
  if (line->xz_bits_per_byte > 0) history->xz_bits_per_byte = line->xz_bits_per_byte;
  switch (line->kind) {
  case METRICS_STEPS: return add_point(history, line, error);
  case METRICS_EVALUATION: return add_evaluation(history, line, error);
  case METRICS_KEPT: history->kept = *line; return true;
  case METRICS_DIAGNOSIS: return add_diagnosis(history, line, error);
  }
  return true;
}

bool history_read(History *history, const char *path, Error *error) {
  MappedFile file;
  if (!file_map(&file, path, EXIT_INPUT, error)) return false;
  const char *line = file.size ? (const char *)file.bytes : "", *end = line + file.size, *newline;
  bool ok = true;
  MetricsLine parsed;
  /* Text after the last newline is still being written, or is incomplete because of a crash. */
  for (; ok && line < end && (newline = memchr(line, '\n', (size_t)(end - line))); line = newline + 1)
    if (!metrics_parse(line, (size_t)(newline - line), &parsed)) history->damaged++;
    else ok = history_add(history, &parsed, error);
  file_unmap(&file);
  return ok && json_memory_ok(error, path);
}

void history_free(History *history) {
  free(history->points);
  free(history->evaluations);
  free(history->diagnoses);
  *history = (History){0};
}

const MetricsLine *history_best(const History *history) {
  const MetricsLine *best = NULL, *e = history->evaluations;
  for (size_t i = 0; i < history->evaluation_count; i++)
    if (isfinite(e[i].val_loss) && (e[i].best || !best || (!best->best && e[i].val_loss < best->val_loss)))
      best = &e[i];
  return best;
}

const MetricsLine *history_last(const History *history) {
  const MetricsLine *last = history->evaluation_count ? &history->evaluations[history->evaluation_count - 1] : NULL;
  const MetricsLine *at_end = &history->at_end;
  return is_known(at_end) && (!last || at_end->step >= last->step) ? at_end : last;
}

const MetricsLine *history_kept(const History *history) {
  const MetricsLine *best = history_best(history), *last = history_last(history);
  if (is_known(&history->kept)) return &history->kept;
  return best && last->step == best->step && isfinite(last->val_loss) ? last : best;
}

bool history_has_diagnosis(const History *history, const char *name) {
  for (size_t i = 0; i < history->diagnosis_count; i++)
    if (strcmp(history->diagnoses[i].diagnosis, name) == 0) return true;
  return false;
}

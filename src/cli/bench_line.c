#include "cli/bench_line.h"

#include "base/file.h"
#include "base/system.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

static size_t peak_memory(const ContextInfo *info) {
  return info->accelerator ? info->peak_bytes : system_peak_memory();
}

bool bench_line_print(const BenchLine *line, Error *error, const char *format, ...) {
  ContextInfo info;
  const Quantiles *s = &line->seconds;
  const char *isa = line->backend->isa, *quote = isa ? "\"" : "";
  line->backend->info(line->context, &info);
  errno = 0;
  printf("{\"tokens_per_s\": %.1f, \"tokens_per_s_mean\": %.1f, \"step_ms\": %.4f, \"step_ms_p10\": %.4f, "
         "\"step_ms_p90\": %.4f, "
         "\"step_ms_mean\": %.4f, \"steps\": %" PRId64 ", \"peak_memory_bytes\": %zu, ",
         (double)line->tokens_per_step / s->median, (double)line->tokens_per_step / s->mean, 1e3 * s->median,
         1e3 * s->p10, 1e3 * s->p90, 1e3 * s->mean, line->steps, peak_memory(&info));
  printf("\"device\": \"%s\", \"isa\": %s%s%s, \"dtype\": \"%s\", \"weights\": \"%s\", \"threads\": %d, \"compiler\": "
         "\"%s\", "
         "\"commit\": \"%s\", \"params\": %" PRId64 ", \"batch\": %d, \"ctx\": %d, ",
         info.device, quote, isa ? isa : "null", quote, dtype_name(info.dtype),
         dtype_name(info.weights ? info.weights : info.dtype), info.threads, COMPILER_NAME, line->version,
         model_parameters(line->model), line->batch, line->model->ctx);
  va_list arguments;
  va_start(arguments, format);
  vprintf(format, arguments);
  va_end(arguments);
  printf("}\n");
  return file_flush(stdout, "stdout", error);
}

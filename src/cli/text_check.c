#include "cli/text_check.h"

#include "text/doctor/doctor.h"
#include "base/file.h"
#include "base/path.h"
#include "base/text.h"

#include <stdio.h>

/* "a.txt: it is UTF-16 ...; convert it: iconv ..." */
static void describe(const Finding *finding, DoctorCommand *command, const char *name, bool whole, char *out,
                     size_t size) {
  const bool piped = path_is_stdin(name), refused = finding->level == FINDING_REFUSED;
  const int used = snprintf(out, size, "%s%s: %s%s", whole || refused ? "" : "the beginning of ",
                            text_one_line(path_shown(name), 250).text, finding->what,
                            refused ? " (--binary reads its bytes anyway)" : "");
  if (!finding->command[0]) return;
  doctor_command(command, finding, name, piped ? DOCTOR_PIPED : DOCTOR_AMONG);
  snprintf(out + used, size - (size_t)used, "; %s: %s", finding->advice, piped ? command->filters : command->text);
}

bool text_check(TextCheck *check, const uint8_t *bytes, size_t size, const char *name, bool whole, Error *error) {
  Findings findings;
  DoctorCommand command = {0};
  char text[3000];
  if (!check->console) return true;
  doctor_identify(&findings, bytes, size, name);
  for (int i = 0; i < findings.count; i++) {
    const Finding *finding = &findings.items[i];
    describe(finding, &command, name, whole, text, sizeof text);
    if (finding->level == FINDING_REFUSED) return fail(error, EXIT_INPUT, "%s", text);
    if (!(check->said >> finding->kind & 1)) console_warning(check->console, "%s", text);
    check->said |= 1u << finding->kind;
  }
  return true;
}

bool text_check_file(TextCheck *check, const char *path, const char *name, Error *error) {
  MappedFile file;
  if (!check->console) return true;
  if (!file_map(&file, path, EXIT_INPUT, error)) return false;
  const bool ok = text_check(check, file.bytes, file.size, name, true, error);
  file_unmap(&file);
  return ok;
}

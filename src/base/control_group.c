#include "base/control_group.h"

#include "base/system.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

double control_group_number(const char *directory, const char *name, const char *format, double otherwise) {
  char path[PATH_MAX + 64];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  return system_read_number(path, format, otherwise);
}

/* Takes `directory` and its ancestors, up to the mount, which is its first `top` bytes. If the group of a container has
 * a name that exists only on the host, its directory is missing and the container's own group is at the mount. */
static void take_all(char *directory, size_t top, int version, ControlGroupTake take, void *out) {
  for (;;) {
    take(directory, version, out);
    char *slash = strrchr(directory + top, '/');
    if (!slash) return;
    *slash = '\0';
  }
}

static bool is_listed(char *controllers, const char *name) {
  char *rest = NULL;
  for (char *one = strtok_r(controllers, ",", &rest); one; one = strtok_r(NULL, ",", &rest))
    if (strcmp(one, name) == 0) return true;
  return false;
}

/* Parses a line of the list of groups: "0::/path" of version 2, "4:cpu,cpuacct:/path" of version 1. Returns the
 * version; 0: another group. */
static int read_membership(char *line, const char *controller, const char **path) {
  line[strcspn(line, "\n")] = '\0';
  char *controllers = strchr(line, ':'), *colon = controllers ? strchr(controllers + 1, ':') : NULL;
  if (!colon) return 0;
  *colon = '\0';
  *path = colon + 1;
  return !controllers[1] ? 2 : is_listed(controllers + 1, controller);
}

void control_groups_take(const char *root, const char *controller, ControlGroupTake take, void *out) {
  char line[PATH_MAX], directory[PATH_MAX];
  snprintf(line, sizeof line, "%s/proc/self/cgroup", root);
  FILE *file = fopen(line, "r");
  if (!file) return;
  while (fgets(line, sizeof line, file)) {
    const char *path;
    const int version = read_membership(line, controller, &path);
    if (!version) continue;
    const size_t top = (size_t)snprintf(directory, sizeof directory, "%s/sys/fs/cgroup%s%s", root,
                                        version == 1 ? "/" : "", version == 1 ? controller : "");
    if (top + strlen(path) >= sizeof directory) continue;
    strcpy(directory + top, path);
    take_all(directory, top, version, take, out);
  }
  fclose(file);
}

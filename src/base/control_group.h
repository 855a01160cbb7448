/* The control groups of this process, in which Linux and containers limit memory and processors. */
#ifndef INKLING_BASE_CONTROL_GROUP_H
#define INKLING_BASE_CONTROL_GROUP_H

/* Called for each directory of a control group. version: that of the control groups, 1 or 2; their files differ. */
typedef void (*ControlGroupTake)(const char *directory, int version, void *out);

/* Calls `take` for the directories of the groups with this controller ("memory", "cpu") and of their ancestors, all of
 * which limit the process: those that <root>/proc/self/cgroup names, below <root>/sys/fs/cgroup. A directory may be
 * missing. root: "" except in tests. */
void control_groups_take(const char *root, const char *controller, ControlGroupTake take, void *out);

/* Returns the number in a file of the directory, as system_read_number() does. */
double control_group_number(const char *directory, const char *name, const char *format, double otherwise);

#endif

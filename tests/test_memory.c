/* base/system and base/threads: limits of resources and of control groups, each read from files made for it. */
#include "tests/cli_helpers.h"
#include "base/system.h"
#include "base/threads.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

static char dir[] = "/tmp/inkling-memory-XXXXXX";

/* A file below the directory of the test; the directories on its way are made. */
static void put(const char *path, const char *text) {
  char whole[300];
  const int length = snprintf(whole, sizeof whole, "%s/%s", dir, path);
  assert_in_range(length, 1, sizeof whole - 1);
  for (char *slash = strchr(whole + strlen(dir) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    assert_true(mkdir(whole, 0777) == 0 || errno == EEXIST);
    *slash = '/';
  }
  FILE *file = fopen(whole, "w");
  assert_non_null(file);
  fputs(text, file);
  assert_int_equal(fclose(file), 0);
}

static AvailableMemory room_of(const char *membership) {
  put("proc/self/cgroup", membership);
  return memory_available_in_groups(dir);
}

static double quota_of(const char *membership) {
  put("proc/self/cgroup", membership);
  return threads_quota(dir);
}

static void unlimited(void **state) {
  (void)state;
  const AvailableMemory none = memory_available_in_groups("/nonexistent");
  assert_true(isinf(none.bytes) && !none.set_by);
  assert_string_equal(memory_limit_text(&none).text, "");
  const AvailableMemory bad = room_of("\n:\nmemory\n3:memory\n9:cpu,cpuset:/a\n0::/nowhere/at/all\n");
  assert_true(isinf(bad.bytes) && !bad.set_by);
  assert_true(isinf(threads_quota("/nonexistent")) && isinf(quota_of("\n:\ncpu\n3:cpu\n9:cpuset:/a\n0::/nowhere\n")));
}

static void version_2(void **state) {
  (void)state;
  put("sys/fs/cgroup/slice/memory.max", "3145728000\n");
  put("sys/fs/cgroup/slice/memory.current", "1048576000\n");
  put("sys/fs/cgroup/slice/memory.stat", "anon 1\ninactive_file 48576000\nactive_file 7\n");
  put("sys/fs/cgroup/slice/unit/memory.max", "max\n");
  put("sys/fs/cgroup/slice/unit/memory.current", "1000\n");
  put("sys/fs/cgroup/slice/unit/tight/memory.max", "1000000\n");
  const AvailableMemory parent = room_of("0::/slice/unit\n");
  assert_true(parent.limit == 3145728000 && parent.bytes == 2145728000);
  assert_string_equal(memory_limit_text(&parent).text, "this process may use 2.9 GiB (cgroup)");
  const AvailableMemory child = room_of("5:pids:/slice/unit\n0::/slice/unit/tight\n");
  assert_true(child.limit == 1e6 && child.bytes == 1e6);
}

/* A container whose own name for its group is that of its host finds its limits at the mount. */
static void version_1(void **state) {
  (void)state;
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("sys/fs/cgroup/memory/memory.usage_in_bytes", "5000\n");
  put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "500000000\n");
  put("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "100000000\n");
  put("sys/fs/cgroup/memory/job/memory.stat", "inactive_file 3\ntotal_inactive_file 20000000\n");
  put("sys/fs/cgroup/memory/job/task/memory.limit_in_bytes", "9223372036854771712\n");
  const AvailableMemory room = room_of("4:cpuset,memory:/job/task\n0::/\n");
  assert_true(room.limit == 5e8 && room.bytes == 4.2e8);
  assert_true(isinf(room_of("4:memory:/docker/1f2e\n").bytes));
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "700000\n");
  assert_true(room_of("4:memory:/docker/1f2e\n").bytes == 695000);
}

static void quotas_of_version_2(void **state) {
  (void)state;
  put("sys/fs/cgroup/slice/cpu.max", "150000 100000\n");
  put("sys/fs/cgroup/slice/unit/cpu.max", "max 100000\n");
  put("sys/fs/cgroup/slice/unit/tight/cpu.max", "25000 50000\n");
  assert_true(isinf(quota_of("0::/\n")) && isinf(quota_of("0::/other\n")));
  assert_true(quota_of("0::/slice/unit\n") == 1.5);
  assert_true(quota_of("1:memory:/\n0::/slice/unit/tight\n") == 0.5);
  put("sys/fs/cgroup/cpu.max", "20000 100000\n"); /* of a container */
  assert_true(quota_of("0::/slice/unit/tight\n") == 0.2);
  put("sys/fs/cgroup/cpu.max", "0 0\n");
  assert_true(isinf(quota_of("0::/\n")));
}

static void quotas_of_version_1(void **state) {
  (void)state;
  put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  put("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "300000\n");
  put("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  put("sys/fs/cgroup/cpu/job/task/cpu.cfs_quota_us", "-1\n");
  put("sys/fs/cgroup/cpu/job/task/cpu.cfs_period_us", "100000\n");
  assert_true(quota_of("4:cpu,cpuacct:/job/task\n0::/\n") == 3);
  assert_true(isinf(quota_of("4:cpu:/docker/1f2e\n")) && isinf(quota_of("4:cpuset,cpuacct:/job\n")));
  put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n");
  assert_true(quota_of("4:cpuacct,cpu:/docker/1f2e\n") == 0.5 && quota_of("2:cpu:/job\n") == 0.5);
}

static void resource_limits(void **state) {
  (void)state;
  const struct {
    int resource;
    const char *words;
  } limits[] = {{RLIMIT_AS, "(ulimit -v)"}, {RLIMIT_DATA, "(ulimit -d)"}};
#if defined(__SANITIZE_ADDRESS__)
  skip(); /* it reserves more than any limit */
#endif
  for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
    struct rlimit before, low;
    assert_int_equal(getrlimit(limits[i].resource, &before), 0);
    low = before;
    low.rlim_cur = 64 << 20;
    assert_int_equal(setrlimit(limits[i].resource, &low), 0);
    assert_int_equal(getrlimit(limits[i].resource, &low), 0);
    if (low.rlim_cur != 64 << 20) skip(); /* qemu does not limit the programs that it runs */
    const AvailableMemory room = memory_available();
    const MemoryLimitText text = memory_limit_text(&room);
    assert_int_equal(setrlimit(limits[i].resource, &before), 0);
    assert_true(room.limit == 64 << 20 && room.bytes < 64 << 20);
    assert_non_null(strstr(text.text, "this process may use 64.0 MiB "));
    assert_non_null(strstr(text.text, limits[i].words));
  }
  const AvailableMemory room = memory_available();
  assert_true(room.limit > 64 << 20);
}

static int begin(void **state) {
  (void)state;
  return mkdtemp(dir) ? 0 : -1;
}

static int end(void **state) {
  (void)state;
  char command[100];
  snprintf(command, sizeof command, "rm -r %s", dir);
  return system(command);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(unlimited),           cmocka_unit_test(version_2),
                                     cmocka_unit_test(version_1),           cmocka_unit_test(quotas_of_version_2),
                                     cmocka_unit_test(quotas_of_version_1), cmocka_unit_test(resource_limits)};
  return cmocka_run_group_tests(tests, begin, end);
}

#pragma once
typedef struct posix_spawn_file_actions_t {
  const char *path[3];
  int flags[3];
} posix_spawn_file_actions_t;
typedef int posix_spawnattr_t;
enum { POSIX_SPAWN_SETSIGMASK = 8 };
#define posix_spawn_file_actions_init(f) (*(f) = (posix_spawn_file_actions_t){0}, 0)
#define posix_spawn_file_actions_destroy(f) ((void)(f))
#define posix_spawn_file_actions_addopen(f, fd, name, how, mode) ((f)->path[fd] = (name), (f)->flags[fd] = (how))
#define posix_spawnattr_init(a) (*(a) = 0)
#define posix_spawnattr_destroy(a) ((void)(a))
#define posix_spawnattr_setsigmask(a, set) ((void)(a), (void)(set))
#define posix_spawnattr_setflags(a, flags) ((void)(a))
int posix_spawn(pid_t *id, const char *program, const posix_spawn_file_actions_t *files, const posix_spawnattr_t *a,
                char *const *words, char *const *environment);

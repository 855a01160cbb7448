#pragma once
struct dirent {
  char d_name[1024];
};
typedef struct DIR DIR;
DIR *opendir(const char *path);
struct dirent *readdir(DIR *dir);
int closedir(DIR *dir);
int alphasort(const struct dirent **, const struct dirent **); /* scandir() takes no other order */
int scandir(const char *path, struct dirent ***out, int (*wanted)(const struct dirent *),
            int (*compare)(const struct dirent **, const struct dirent **));

/* Notes what power loss could not take: for LD_PRELOAD, with SYNCS_FILE naming the file of the notes.
 *
 * After each sync of a file that succeeded, and before who called it goes on, a line says the file's inode and how long
 * it was when the sync began. Whatever a process has promised since is behind such a line.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int noted(long number, int file)
{
    struct stat before;
    const int known = fstat(file, &before) == 0 && S_ISREG(before.st_mode);
    const long result = syscall(number, file);
    const char *path = getenv("SYNCS_FILE");
    if (result != 0 || !known || path == NULL)
        return (int)result;
    char line[64];
    const int length = snprintf(line, sizeof line, "%llu %lld\n", (unsigned long long)before.st_ino,
                                (long long)before.st_size);
    const int notes = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (notes < 0 || write(notes, line, (size_t)length) != length)
        abort();
    close(notes);
    return 0;
}

int fsync(int file) { return noted(SYS_fsync, file); }
int fdatasync(int file) { return noted(SYS_fdatasync, file); }

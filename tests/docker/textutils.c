/* The reference of the textutils task as a binary, which can be run without being readable. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *tools[] = {
    "wc", "cut", "tr", "sort", "uniq", "head", "tail", "nl", "fold", "paste", "join", "comm", "seq",
    "tac", "expand", "unexpand", "fmt", "od", "cksum", "basename", "dirname", "expr", "factor", "numfmt", "tsort",
};

int main(int argc, char **argv) {
    const char *slash = strrchr(argv[0], '/');
    const char *name = slash ? slash + 1 : argv[0];
    int is_tool = 0;
    char path[64];
    for (size_t i = 0; i < sizeof tools / sizeof *tools; i++)
        is_tool |= strcmp(name, tools[i]) == 0;
    if (!is_tool) {
        if (argc < 2) {
            fputs("usage: textutils TOOL [ARGUMENT]...\n", stderr);
            return 127;
        }
        argv++;
        name = argv[0];
        if (strcmp(name, "hold") == 0) { /* stays what it is until its input ends: something to look into */
            char byte;
            if (write(1, "held\n", 5) != 5)
                return 1;
            while (read(0, &byte, 1) > 0)
                ;
            return 0;
        }
    }
    for (size_t i = 0; i < sizeof tools / sizeof *tools; i++)
        if (strcmp(name, tools[i]) == 0) {
            snprintf(path, sizeof path, "/usr/bin/%s", name);
            argv[0] = path;
            execv(path, argv);
        }
    fprintf(stderr, "textutils: unknown tool: %s\n", name);
    return 127;
}

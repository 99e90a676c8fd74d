/* The machine of the mock NVML: a text file, and the processes that speak for themselves.
 *
 * Read by the mock library and by the simulated GPU (../simgpu), so that both see one machine: plain C, which is C++ too.
 *
 * $NVML_MOCK_STATE names the text file. No file = driver not loaded. It may be replaced at any time (write a temporary,
 * rename it over). Lines are words "key=value"; values may be "quoted"; sizes take K, M, G; NA = not available here:
 *   system driver=550.54.15 nvml=12.550.54.15 cuda=12040 procv3=24   (32: the layout of early R535 drivers)
 *   gpu 0 name="NVIDIA A100" uuid=GPU-.. bus=00000000:07:00.0 total=80G reserved=600M used=2G
 *         util=35 memutil=12 temp=41 power=72000 plimit=400000 fan=NA cc=8.0 mig=0 maxmig=0 minor=0
 *   mig 0 0 uuid=MIG-.. name=.. gi=1 ci=0 total=10G reserved=14M used=1G sm=14 slices=1
 *   proc 0 pid=4242 type=C|G|M used=123M|NA gi=1 ci=0 sm=40 mem=10 enc=0 dec=0 ts=<usec>
 *   xid 0 code=79                                 one event, delivered once per (re)write
 *   fault fn=nvmlDeviceGetMemory* dev=0|0.1|* code=GPU_IS_LOST after=0 times=-1
 *   delay fn=* dev=* ms=2000
 *
 * A process speaks for itself in a file <state>.d/<pid>, which counts only while that process lives:
 *   since <start time>                            field 22 of /proc/<pid>/stat: a later process of the same id is another
 *   <gpu> <bytes> [<bytes more>]                  what it holds there; what it pretends that nobody's process holds
 * The bytes of a "gpu" line's used= and of all such files together are what the driver calls used.
 */
#ifndef FAKENVML_MACHINE_H
#define FAKENVML_MACHINE_H

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long u64;
#define NA64 0xFFFFFFFFFFFFFFFFull /* a value that is not available */
#define NAU 0xFFFFFFFFu

enum { MAXGPU = 32, MAXMIG = 8, MAXPROC = 4096, MAXRULE = 64, MAXXID = 16, MAXLIVE = 256, MAXPATH = 4096 };

/* Codes and texts of the errors of NVML. */
static const struct {
    int code;
    const char *name, *text;
} NVML_ERRORS[] = {
    {0, "SUCCESS", "Success"},
    {1, "UNINITIALIZED", "Uninitialized"},
    {2, "INVALID_ARGUMENT", "Invalid Argument"},
    {3, "NOT_SUPPORTED", "Not Supported"},
    {4, "NO_PERMISSION", "Insufficient Permissions"},
    {6, "NOT_FOUND", "Not Found"},
    {7, "INSUFFICIENT_SIZE", "Insufficient Size"},
    {9, "DRIVER_NOT_LOADED", "Driver Not Loaded"},
    {10, "TIMEOUT", "Timeout"},
    {11, "IRQ_ISSUE", "Interrupt Request Issue"},
    {12, "LIBRARY_NOT_FOUND", "NVML Shared Library Not Found"},
    {13, "FUNCTION_NOT_FOUND", "Function Not Found"},
    {14, "CORRUPTED_INFOROM", "Corrupted infoROM"},
    {15, "GPU_IS_LOST", "GPU is lost"},
    {16, "RESET_REQUIRED", "GPU requires reset"},
    {17, "OPERATING_SYSTEM", "The operating system has blocked the request."},
    {18, "LIB_RM_VERSION_MISMATCH", "Driver/library version mismatch"},
    {19, "IN_USE", "In use by another client"},
    {20, "MEMORY", "Insufficient Memory"},
    {21, "NO_DATA", "No data"},
    {25, "ARGUMENT_VERSION_MISMATCH", "Argument version mismatch"},
    {27, "NOT_READY", "System is not in ready state"},
    {28, "GPU_NOT_FOUND", "No GPUs found"},
    {999, "UNKNOWN", "Unknown Error"},
};
enum { NVML_ERROR_COUNT = sizeof NVML_ERRORS / sizeof *NVML_ERRORS };

typedef struct { /* a GPU or a MIG instance */
    int on, cc[2];
    char name[96], uuid[96], bus[32], serial[32];
    u64 total, reserved, used, util, memutil, temp, power, plimit, fan, mig, maxmig, minor, gi, ci, sm, slices;
} Device;

typedef struct {
    int gpu;
    unsigned pid, gi, ci, sm, mem, enc, dec;
    char type; /* Compute, Graphics or Mps */
    u64 used, ts;
} Process;

typedef struct { /* a fault, or with code -1 a delay */
    char fn[64], dev[16];
    int code, after, times, ms;
} Rule;

typedef struct {
    Device gpu[MAXGPU], mig[MAXGPU][MAXMIG];
    Process proc[MAXPROC];
    Rule rule[MAXRULE];
    u64 xid[MAXXID], cuda;
    int xid_gpu[MAXXID], nproc, nrule, nxid, nxid_sent, ngpu, stride3;
    char driver[80], nvml[80];
} Machine;

typedef struct { /* the processes that speak for themselves */
    Process proc[MAXLIVE];
    int nproc;
    u64 unattributed[MAXGPU];
} Live;

/* ---- the text file ---- */
typedef struct {
    char *word[40];
    int count;
} Line;

static inline Line split_line(char *s) { /* in place: quotes are taken out, '#' ends the line */
    Line line;
    memset(&line, 0, sizeof line);
    while (line.count < (int)(sizeof line.word / sizeof *line.word)) {
        s += strspn(s, " \t\r\n");
        if (!*s || *s == '#') break;
        char *out = s;
        int quoted = 0;
        line.word[line.count++] = s;
        for (; *s && (quoted || !strchr(" \t\r\n", *s)); s++) {
            if (*s == '"')
                quoted = !quoted;
            else
                *out++ = *s;
        }
        if (*s) s++;
        *out = 0;
    }
    return line;
}

static inline const char *find_value(const Line *line, const char *key) {
    const size_t length = strlen(key);
    for (int i = 0; i < line->count; i++)
        if (!strncmp(line->word[i], key, length) && line->word[i][length] == '=') return line->word[i] + length + 1;
    return NULL;
}

static inline u64 number(const Line *line, const char *key, u64 otherwise) {
    const char *value = find_value(line, key);
    char *end;
    if (!value) return otherwise;
    if (!strcmp(value, "NA")) return NA64;
    const u64 n = strtoull(value, &end, 0);
    return *end == 'K' ? n << 10 : *end == 'M' ? n << 20 : *end == 'G' ? n << 30 : n;
}

static inline void text(const Line *line, const char *key, char *out, size_t size, const char *otherwise, ...) {
    const char *value = find_value(line, key);
    va_list arguments;
    va_start(arguments, otherwise);
    if (value)
        snprintf(out, size, "%s", value);
    else
        vsnprintf(out, size, otherwise, arguments);
    va_end(arguments);
}

static inline int error_code(const char *value) {
    if (!value) return 999;
    for (int i = 0; i < NVML_ERROR_COUNT; i++)
        if (!strcmp(value, NVML_ERRORS[i].name)) return NVML_ERRORS[i].code;
    return atoi(value);
}

static inline void read_device(Device *d, const Line *line, int gpu, int mig) { /* mig < 0: the GPU itself */
    d->on = 1;
    if (mig < 0) {
        text(line, "name", d->name, sizeof d->name, "Mock GPU %d", gpu);
        text(line, "uuid", d->uuid, sizeof d->uuid, "GPU-00000000-0000-0000-0000-%012d", gpu);
    } else {
        text(line, "name", d->name, sizeof d->name, "Mock GPU %d MIG 1g.10gb", gpu);
        text(line, "uuid", d->uuid, sizeof d->uuid, "MIG-00000000-0000-0000-%04d-%012d", gpu, mig);
    }
    text(line, "bus", d->bus, sizeof d->bus, "00000000:%02X:00.0", gpu + 1);
    text(line, "serial", d->serial, sizeof d->serial, "0");
    d->total = number(line, "total", 16ull << 30);
    d->reserved = number(line, "reserved", 0);
    d->used = number(line, "used", 0);
    d->util = number(line, "util", 0);
    d->memutil = number(line, "memutil", 0);
    d->temp = number(line, "temp", 40);
    d->power = number(line, "power", 50000);
    d->plimit = number(line, "plimit", 300000);
    d->fan = number(line, "fan", NA64);
    d->mig = number(line, "mig", NA64);
    d->maxmig = number(line, "maxmig", d->mig == NA64 ? 0 : MAXMIG - 1);
    d->minor = number(line, "minor", (u64)gpu);
    d->gi = number(line, "gi", 0);
    d->ci = number(line, "ci", 0);
    d->sm = number(line, "sm", 14);
    d->slices = number(line, "slices", 1);
    const char *capability = find_value(line, "cc");
    if (!capability || sscanf(capability, "%d.%d", &d->cc[0], &d->cc[1]) != 2) {
        d->cc[0] = 8;
        d->cc[1] = 0;
    }
}

static inline void read_process(Process *p, const Line *line, int gpu) {
    const char *type = find_value(line, "type");
    p->gpu = gpu;
    p->pid = (unsigned)number(line, "pid", 0);
    p->gi = (unsigned)number(line, "gi", NAU);
    p->ci = (unsigned)number(line, "ci", NAU);
    p->sm = (unsigned)number(line, "sm", 0);
    p->mem = (unsigned)number(line, "mem", 0);
    p->enc = (unsigned)number(line, "enc", 0);
    p->dec = (unsigned)number(line, "dec", 0);
    p->type = type ? *type : 'C';
    p->used = number(line, "used", NA64);
    p->ts = number(line, "ts", 0);
}

static inline void read_rule(Rule *r, const Line *line) {
    text(line, "fn", r->fn, sizeof r->fn, "*");
    text(line, "dev", r->dev, sizeof r->dev, "*");
    r->ms = (int)number(line, "ms", 0);
    r->after = (int)number(line, "after", 0);
    r->times = (int)number(line, "times", (u64)-1);
    r->code = strcmp(line->word[0], "fault") ? -1 : error_code(find_value(line, "code"));
}

static inline void read_line(Machine *m, const Line *line) {
    const char *kind = line->word[0];
    const int gpu = line->count > 1 ? atoi(line->word[1]) : 0, mig = line->count > 2 ? atoi(line->word[2]) : 0;
    if (gpu < 0 || gpu >= MAXGPU) return;
    if (!strcmp(kind, "system")) {
        text(line, "driver", m->driver, sizeof m->driver, "550.54.15");
        text(line, "nvml", m->nvml, sizeof m->nvml, "12.%s", m->driver);
        m->cuda = number(line, "cuda", 12040);
        m->stride3 = (int)number(line, "procv3", 24);
    } else if (!strcmp(kind, "gpu")) {
        read_device(&m->gpu[gpu], line, gpu, -1);
        if (gpu >= m->ngpu) m->ngpu = gpu + 1;
    } else if (!strcmp(kind, "mig") && mig >= 0 && mig < MAXMIG) {
        read_device(&m->mig[gpu][mig], line, gpu, mig);
    } else if (!strcmp(kind, "proc") && m->nproc < MAXPROC) {
        read_process(&m->proc[m->nproc++], line, gpu);
    } else if (!strcmp(kind, "xid") && m->nxid < MAXXID) {
        m->xid_gpu[m->nxid] = gpu;
        m->xid[m->nxid++] = number(line, "code", 79);
    } else if ((!strcmp(kind, "fault") || !strcmp(kind, "delay")) && m->nrule < MAXRULE) {
        read_rule(&m->rule[m->nrule++], line);
    } else {
        fprintf(stderr, "nvml_mock: bad line: %s\n", kind);
    }
}

/* The machine of the text file, to be freed by the caller; NULL where there is no file. */
static inline Machine *read_machine(const char *path) {
    FILE *file = path ? fopen(path, "re") : NULL;
    if (!file) return NULL;
    Machine *m = (Machine *)calloc(1, sizeof *m);
    char *line = NULL;
    size_t room = 0;
    strcpy(m->driver, "550.54.15");
    strcpy(m->nvml, "12.550.54.15");
    m->cuda = 12040;
    m->stride3 = 24;
    while (getline(&line, &room, file) > 0) {
        const Line words = split_line(line);
        if (words.count) read_line(m, &words);
    }
    free(line);
    fclose(file);
    return m;
}

/* ---- the processes that speak for themselves ---- */

/* The start time of a process; 0 if it is gone, or a zombie, whose memory the driver has taken back. */
static inline u64 process_started(long pid) {
    char path[64], line[1024] = "", state = 'X';
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    const char *got = fgets(line, sizeof line, file);
    fclose(file);
    const char *rest = got ? strrchr(line, ')') : NULL; /* the name before it may hold anything */
    if (!rest || sscanf(rest + 1, " %c", &state) != 1 || state == 'Z' || state == 'X') return 0;
    for (int field = 3; rest && field <= 22; field++) /* to the blank before field 22 */
        rest = strchr(rest + 1, ' ');
    return rest ? strtoull(rest, NULL, 10) : 0;
}

static inline void read_live_file(Live *live, const char *path, long pid) {
    char line[128];
    u64 since = 0, bytes, more;
    int gpu;
    const u64 started = process_started(pid);
    FILE *file = started ? fopen(path, "re") : NULL;
    if (!file) return;
    while (fgets(line, sizeof line, file) && live->nproc < MAXLIVE) {
        if (sscanf(line, "since %llu", &since) == 1) {
            if (since != started) break;
            continue;
        }
        const int fields = sscanf(line, "%d %llu %llu", &gpu, &bytes, &more);
        if (fields < 2 || gpu < 0 || gpu >= MAXGPU) continue;
        if (fields == 3) live->unattributed[gpu] += more;
        if (!bytes) continue;
        Process *p = &live->proc[live->nproc++];
        memset(p, 0, sizeof *p);
        p->gpu = gpu;
        p->pid = (unsigned)pid;
        p->gi = p->ci = NAU;
        p->type = 'C';
        p->used = bytes;
    }
    fclose(file);
}

/* All of them but one (0: all). */
static inline void read_live(Live *live, const char *state_path, long but) {
    char folder[MAXPATH], path[MAXPATH + 300];
    const struct dirent *entry;
    memset(live, 0, sizeof *live);
    if (!state_path || snprintf(folder, sizeof folder, "%s.d", state_path) >= (int)sizeof folder) return;
    DIR *dir = opendir(folder);
    if (!dir) return;
    while ((entry = readdir(dir)) != NULL) {
        char *end;
        const long pid = strtol(entry->d_name, &end, 10);
        if (*end || pid <= 0 || pid == but) continue; /* a lock, or a file that is being written */
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        read_live_file(live, path, pid);
    }
    closedir(dir);
}

/* What they make the driver call used, beside a GPU's used=. */
static inline u64 live_bytes(const Live *live, int gpu) {
    u64 sum = live->unattributed[gpu];
    for (int i = 0; i < live->nproc; i++)
        if (live->proc[i].gpu == gpu) sum += live->proc[i].used;
    return sum;
}

#endif

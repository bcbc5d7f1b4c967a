/*
 * sbatch, srun and salloc --min-runtime=TIME --resumable --budget=NAME, for Slurm 22.05 and later.
 *
 *     cc -shared -fPIC -O2 -o spank_bursar.so spank_bursar.c
 *     plugstack.conf:  optional /usr/lib/slurm/spank_bursar.so
 *
 * It only carries what was said to job_submit.lua, which checks it. It is needed where jobs are submitted; elsewhere
 * it does nothing. Without it, the same is declared by --comment or by #BURSAR lines in the script.
 */
#include <slurm/spank.h>
#include <stdio.h>

SPANK_PLUGIN(bursar, 1);

enum { MIN_RUNTIME, RESUMABLE, BUDGET, OPTIONS };

static const char *const name[OPTIONS] = {
    "BURSAR_DECLARED_MIN_RUNTIME",
    "BURSAR_DECLARED_RESUMABLE",
    "BURSAR_DECLARED_BUDGET",
};
static char said[OPTIONS][256];

static int take(int which, const char *value, int remote)
{
    if (remote)
        return ESPANK_SUCCESS;
    if (which < 0 || which >= OPTIONS)
        return ESPANK_BAD_ARG;
    if (!value)
        value = "yes";
    if (snprintf(said[which], sizeof said[which], "%s", value) >= (int)sizeof said[which]) {
        slurm_error("bursar: that value is too long");
        return ESPANK_BAD_ARG;
    }
    return ESPANK_SUCCESS;
}

static struct spank_option options[] = {
    {"min-runtime", "TIME", "how long the job shall run undisturbed once it runs: 30m, 8h", 1, MIN_RUNTIME, take},
    {"resumable", NULL, "the job saves when it is signalled and may go on later", 0, RESUMABLE, take},
    {"budget", "NAME", "the budget that the job is charged to", 1, BUDGET, take},
    SPANK_OPTIONS_TABLE_END,
};

int slurm_spank_init(spank_t spank, int count, char **arguments)
{
    int i;

    (void)count;
    (void)arguments;
    switch (spank_context()) {
    case S_CTX_ALLOCATOR:
    case S_CTX_LOCAL:
    case S_CTX_REMOTE:
        break;
    default:
        return ESPANK_SUCCESS;
    }
    for (i = 0; options[i].name; i++)
        if (spank_option_register(spank, &options[i]) != ESPANK_SUCCESS)
            slurm_error("bursar: --%s cannot be offered", options[i].name);
    return ESPANK_SUCCESS;
}

int slurm_spank_init_post_opt(spank_t spank, int count, char **arguments)
{
    int i;

    (void)count;
    (void)arguments;
    if (spank_context() != S_CTX_ALLOCATOR && spank_context() != S_CTX_LOCAL)
        return ESPANK_SUCCESS;
    for (i = 0; i < OPTIONS; i++)
        if (said[i][0] && spank_job_control_setenv(spank, name[i], said[i], 1) != ESPANK_SUCCESS)
            slurm_error("bursar: what was declared cannot be handed on");
    return ESPANK_SUCCESS;
}

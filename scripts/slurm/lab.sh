# The parts of slurm-lab.sh, which sources this.
# shellcheck shell=bash

if [ -d /dev/shm ] && [ -w /dev/shm ]; then lab_default=/dev/shm/bursar-slurm-lab; else lab_default="${TMPDIR:-/tmp}/bursar-slurm-lab"; fi
LAB="${BURSAR_SLURM_LAB:-$lab_default}"
NODES="${BURSAR_SLURM_NODES:-4}"
GPUS="${BURSAR_SLURM_GPUS:-8}"
LAB_USERS=(alice bob carol dave svc)
SBIN=/usr/sbin
export SLURM_CONF="$LAB/etc/slurm.conf"

lab_library() { # lab_library NAME: where the system has it
    local found
    for found in /usr/lib/*/"$1" /usr/lib/"$1"; do
        if [ -e "$found" ]; then
            printf '%s\n' "$found"
            return
        fi
    done
    return 1
}

# ---- packages

lab_installed() {
    local one
    for one in slurmctld-wlm slurmd-wlm slurmdbd munged mariadbd; do [ -x "$SBIN/$one" ] || return 1; done
    has sbatch && has setpriv && has cc && lab_library libnss_wrapper.so >/dev/null && [ -e /usr/include/slurm/spank.h ]
}

lab_install() {
    [ "$(id -u)" -eq 0 ] || die "a Slurm cluster for tests must be started as root (BURSAR_NO_SLURM=1 does without)"
    if lab_installed; then
        return
    fi
    note "installing Slurm, munge, MariaDB and libnss-wrapper"
    # Their packages start services; this keeps them from it, as Debian's own way to say so.
    local policy=/usr/sbin/policy-rc.d ours=0 done=0
    if ! [ -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
        ours=1
    fi
    RUNLEVEL=1 apt_install munge mariadb-server slurmctld slurmd slurm-client slurmdbd \
        slurm-wlm-mysql-plugin libslurm-dev libnss-wrapper gcc libc6-dev >/dev/null || done=1
    if [ "$ours" = 1 ]; then rm -f "$policy"; fi
    [ "$done" = 0 ] && lab_installed || die "Slurm cannot be installed here"
}

# ---- processes

lab_alive() { # lab_alive PIDFILE PROGRAM: whether the file names a process of that program
    local pid
    { read -r pid <"$1"; } 2>/dev/null && [ -n "$pid" ] && [ "/proc/$pid/exe" -ef "$2" ]
}

lab_await() { # lab_await SECONDS COMMAND...: until it succeeds
    local until=$((SECONDS + $1))
    shift
    while ! "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$until" ] || die "waited in vain for: $*  (logs: $LAB/log)"
        sleep 0.05
    done
}

lab_gone() { # whether a process is gone; one that only waits to be buried is
    local line
    { read -r line <"/proc/$1/stat"; } 2>/dev/null || return 0
    line="${line##*) }"
    [ "${line%% *}" = Z ]
}

lab_stop() { # lab_stop PIDFILE PROGRAM
    local pid i
    if lab_alive "$1" "$2"; then
        read -r pid <"$1"
        # A slurmd may lose a TERM while it accepts a connection, so it is told once a second.
        for i in {0..199}; do
            if [ $((i % 20)) = 0 ]; then kill -TERM "$pid" 2>/dev/null || true; fi
            if lab_gone "$pid"; then break; fi
            sleep 0.05
        done
        lab_gone "$pid" || kill -KILL "$pid" 2>/dev/null || true
    fi
    rm -f "$1"
}

lab_lock() { # one at a time
    mkdir -p "$(dirname "$LAB")"
    exec 9>"$LAB.lock"
    flock 9
    "$@"
    exec 9>&-
}

# ---- up

lab_up() {
    local name
    mkdir -p "$LAB"/{bin,etc,run/munge,log,state,spool,db,dev,jobs,users}
    chmod 755 "$LAB" "$LAB"/{bin,etc,run,run/munge,dev,spool}
    chmod 1777 "$LAB/jobs"
    chmod 700 "$LAB/db"
    for name in slurmctld slurmd slurmstepd; do ln -sfn "$SBIN/$name-wlm" "$LAB/bin/$name"; done
    if ! [ -e "$LAB/etc/written" ]; then
        . scripts/slurm/configure.sh
        lab_configure
        touch "$LAB/etc/written"
    fi
    lab_munge
    lab_mariadb
    export LD_PRELOAD
    LD_PRELOAD="$(lab_library libnss_wrapper.so)"
    export NSS_WRAPPER_PASSWD="$LAB/etc/passwd" NSS_WRAPPER_GROUP="$LAB/etc/group"
    lab_slurm
    unset LD_PRELOAD
}

lab_munge() {
    lab_alive "$LAB/run/munged.pid" "$SBIN/munged" || "$SBIN/munged" --force --num-threads=10 \
        --key-file="$LAB/etc/munge.key" --socket="$LAB/run/munge/s" --pid-file="$LAB/run/munged.pid" \
        --log-file="$LAB/log/munged.log" --seed-file="$LAB/run/munge.seed" 9>&- 2>>"$LAB/log/munged.out"
}

# A socket and no port. Nothing of it shall outlive the machine, so nothing is synced.
lab_mariadb() {
    export MYSQL_UNIX_PORT="$LAB/run/mysql.sock"
    if lab_alive "$LAB/run/mariadb.pid" "$SBIN/mariadbd"; then return; fi
    if ! [ -d "$LAB/db/mysql" ]; then
        mariadb-install-db --no-defaults --user=root --datadir="$LAB/db" --auth-root-authentication-method=normal \
            --skip-test-db --innodb-flush-method=nosync >"$LAB/log/mariadb-install.log" 2>&1
    fi
    setsid "$SBIN/mariadbd" --no-defaults --user=root --datadir="$LAB/db" --socket="$MYSQL_UNIX_PORT" \
        --pid-file="$LAB/run/mariadb.pid" --skip-networking --innodb-buffer-pool-size=256M \
        --innodb-lock-wait-timeout=900 --innodb-log-file-size=64M --innodb-flush-log-at-trx-commit=0 \
        --innodb-flush-method=nosync --innodb-doublewrite=0 --max-allowed-packet=16M \
        --log-error="$LAB/log/mariadb.log" 9>&- </dev/null >/dev/null 2>&1 &
    lab_await 60 mariadb-admin --no-defaults --socket="$MYSQL_UNIX_PORT" -uroot ping
}

lab_slurm() {
    local port i
    port="$(cat "$LAB/etc/port")"
    lab_alive "$LAB/run/slurmdbd.pid" "$SBIN/slurmdbd" || "$SBIN/slurmdbd" 9>&-
    lab_await 60 bash -c ": </dev/tcp/127.0.0.1/$((port + 19))"
    lab_await 60 sacctmgr -n list cluster
    if [ -z "$(sacctmgr -nP list cluster lab)" ]; then
        sacctmgr -i load "$LAB/etc/tree.cfg" >"$LAB/log/tree.log" 2>&1 || die "$(cat "$LAB/log/tree.log")"
    fi
    lab_alive "$LAB/run/slurmctld.pid" "$LAB/bin/slurmctld" || "$LAB/bin/slurmctld" 9>&-
    lab_await 60 scontrol ping
    for ((i = 1; i <= $(cat "$LAB/etc/nodes"); i++)); do
        lab_alive "$LAB/run/slurmd.n$i.pid" "$LAB/bin/slurmd" || "$LAB/bin/slurmd" -N "n$i" -d "$LAB/bin/slurmstepd" 9>&-
    done
    lab_await 120 lab_nodes_respond
}

lab_nodes_respond() { [ "$(sinfo -h -N -r -o %N | sort -u | wc -l)" -ge "$(cat "$LAB/etc/nodes")" ]; }

lab_recount() {
    lab_stop "$LAB/run/slurmctld.pid" "$LAB/bin/slurmctld"
    lab_up
}

# ---- down

lab_tree() { # a process and all below it
    local child
    for child in $(cat "/proc/$1/task/"*/children 2>/dev/null); do lab_tree "$child"; done
    echo "$1"
}

lab_down() {
    local file process
    # Before the slurmd, so that nothing is started elsewhere.
    lab_stop "$LAB/run/slurmctld.pid" "$LAB/bin/slurmctld"
    for file in "$LAB"/run/slurmd.*.pid; do
        if [ -e "$file" ]; then lab_stop "$file" "$LAB/bin/slurmd" & fi
    done
    wait
    # What jobs left: their supervisors outlive slurmd. They are ours if they were started with our configuration.
    for process in /proc/[0-9]*; do
        case "$(readlink "$process/exe" 2>/dev/null)" in
        */slurmstepd*)
            if tr '\0' '\n' <"$process/environ" 2>/dev/null | grep -qx "SLURM_CONF=$SLURM_CONF"; then
                # shellcheck disable=SC2046
                kill -KILL $(lab_tree "${process#/proc/}") 2>/dev/null || true
            fi
            ;;
        esac
    done
    lab_stop "$LAB/run/slurmdbd.pid" "$SBIN/slurmdbd"
    lab_stop "$LAB/run/mariadb.pid" "$SBIN/mariadbd"
    lab_stop "$LAB/run/munged.pid" "$SBIN/munged"
    if [ "${1:-}" = --purge ]; then rm -rf -- "${LAB:?}"; fi
}

# ---- for as long as somebody needs it

lab_up_for() {
    lab_up
    : >"$LAB/users/$1"
    # It is let go of by a process of its own, since a test that is killed lets go of nothing.
    local keeper
    if ! { read -r keeper <"$LAB/run/keeper.pid"; } 2>/dev/null || lab_gone "$keeper"; then
        setsid scripts/slurm-lab.sh keep </dev/null >>"$LAB/log/keeper.log" 2>&1 9>&- &
        echo $! >"$LAB/run/keeper.pid"
    fi
}

lab_needed() {
    local file
    for file in "$LAB"/users/*; do
        if [ -e "$file" ] && ! lab_gone "${file##*/}"; then return 0; fi
    done
    return 1
}

lab_keeper() {
    local idle=0
    while [ -d "$LAB/users" ]; do
        if lab_needed; then idle=0; else idle=$((idle + 1)); fi
        # Somebody may have come by the time that it is locked: then it goes on.
        if [ "$idle" -ge 10 ]; then lab_lock lab_leave; fi
        sleep 1
    done
}

lab_leave() { if ! lab_needed; then lab_down --purge; fi; }

# ---- env

lab_env() {
    printf 'export SLURM_CONF=%q\n' "$SLURM_CONF"
    printf 'export LD_PRELOAD=%q\n' "$(lab_library libnss_wrapper.so)"
    printf 'export NSS_WRAPPER_PASSWD=%q\n' "$LAB/etc/passwd"
    printf 'export NSS_WRAPPER_GROUP=%q\n' "$LAB/etc/group"
    # shellcheck disable=SC2016
    printf '%s\n' 'lab_uid() { awk -F: -v name="$1" '\''$1 == name { print $3 }'\'' "$NSS_WRAPPER_PASSWD"; }'
    # shellcheck disable=SC2016
    printf '%s\n' 'lab_as() { local uid; uid="$(lab_uid "$1")"; shift; setpriv --reuid="$uid" --regid="$uid" --clear-groups -- "$@"; }'
}

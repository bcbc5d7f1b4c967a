# Writes the configuration of a Slurm cluster for tests, once. lab.sh sources this.
# shellcheck shell=bash

# A thousand ports of which nobody listens on those that this cluster needs, and no other cluster beside it has them:
# several may come up at the same time, and none of them listens yet. Written down before anybody else looks.
lab_port() {
    local base used port free taken lock
    exec {lock}>"$(dirname "$LAB")/bursar-slurm-ports.lock"
    flock "$lock"
    taken=" $(cat "$(dirname "$LAB")"/*/etc/port 2>/dev/null | tr '\n' ' ')"
    used=" $(cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk '$4 == "0A" { sub(/.*:/, "", $2); print $2 }' | tr '\n' ' ')"
    for base in $(seq 16800 1000 31800); do
        free=1
        case "$taken" in *" $base "*) free=0 ;; esac
        for port in $((base + 17)) $((base + 19)) $(seq $((base + 101)) $((base + 100 + NODES))); do
            case "$used" in *" $(printf %04X "$port") "*) free=0 ;; esac
        done
        if [ "$free" = 1 ]; then
            echo "$base" >"$LAB/etc/port"
            exec {lock}>&-
            return
        fi
    done
    die "no free ports for a Slurm cluster"
}

lab_configure() {
    local host port name uid=20001 i
    host="$(hostname -s)"
    lab_port
    port="$(cat "$LAB/etc/port")"
    echo "$NODES" >"$LAB/etc/nodes"
    cp /etc/passwd /etc/group "$LAB/etc/"
    for name in "${LAB_USERS[@]}"; do
        echo "$name:x:$uid:$uid::$LAB/jobs:/bin/bash" >>"$LAB/etc/passwd"
        echo "$name:x:$uid:" >>"$LAB/etc/group"
        uid=$((uid + 1))
    done
    (umask 077 && head -c 128 /dev/urandom >"$LAB/etc/munge.key")
    # Slurm looks whether a GPU is a character device, through links; for anything else it sets no CUDA_VISIBLE_DEVICES.
    for ((i = 0; i < GPUS; i++)); do ln -sfn /dev/null "$LAB/dev/nvidia$i"; done
    echo "NodeName=n[1-$NODES] Name=gpu Type=h100 File=$LAB/dev/nvidia[0-$((GPUS - 1))]" >"$LAB/etc/gres.conf"

    (umask 077 && cat >"$LAB/etc/slurmdbd.conf") <<E
AuthType=auth/munge
AuthInfo=socket=$LAB/run/munge/s
SlurmUser=root
DbdHost=$host
DbdAddr=127.0.0.1
DbdPort=$((port + 19))
CommunicationParameters=NoInAddrAny
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm_acct_db
LogFile=$LAB/log/slurmdbd.log
PidFile=$LAB/run/slurmdbd.pid
E

    # AuthInfo is not what the connection to slurmdbd goes by; AccountingStoragePass is.
    cat >"$LAB/etc/slurm.conf" <<E
ClusterName=lab
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$((port + 17))
SlurmUser=root
SlurmdUser=root
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthType=auth/munge
AuthInfo=socket=$LAB/run/munge/s
StateSaveLocation=$LAB/state
SlurmctldPidFile=$LAB/run/slurmctld.pid
SlurmctldLogFile=$LAB/log/slurmctld.log
SlurmdPidFile=$LAB/run/slurmd.%n.pid
SlurmdSpoolDir=$LAB/spool/%n
SlurmdLogFile=$LAB/log/slurmd.%n.log
SlurmdParameters=config_overrides
MailProg=/bin/true
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=1
SlurmdTimeout=60
KillWait=5
MinJobAge=300
MaxJobCount=100000
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=1,sched_interval=2,bf_interval=2,bf_continue,bf_yield_interval=200000,bf_yield_sleep=100000
PriorityType=priority/multifactor
PriorityDecayHalfLife=7-0
PriorityCalcPeriod=1
JobRequeue=1
GresTypes=gpu
PlugStackConfig=$LAB/etc/plugstack.conf
JobSubmitPlugins=lua
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=$((port + 19))
AccountingStoragePass=$LAB/run/munge/s
AccountingStorageTRES=gres/gpu,gres/gpu:h100
AccountingStorageEnforce=associations,limits,qos
AccountingStoreFlags=job_comment
NodeName=n[1-$NODES] NodeAddr=127.0.0.1 NodeHostName=$host Port=[$((port + 101))-$((port + 100 + NODES))] CPUs=64 RealMemory=1000000 Gres=gpu:h100:$GPUS State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE DefaultTime=60 DefMemPerCPU=1000 State=UP
PartitionName=free Nodes=ALL MaxTime=INFINITE DefaultTime=60 DefMemPerCPU=1000 State=UP
E
    for ((i = 1; i <= NODES; i++)); do
        echo "PartitionName=only$i Nodes=n$i MaxTime=INFINITE DefaultTime=60 DefMemPerCPU=1000 State=UP" >>"$LAB/etc/slurm.conf"
    done

    cat >"$LAB/etc/tree.cfg" <<E
Cluster - 'lab':Fairshare=1
Parent - 'root'
User - 'root':AdminLevel='Administrator':DefaultAccount='root':Fairshare=1
User - 'svc':AdminLevel='Administrator':DefaultAccount='root':Fairshare=1
Account - 'research':Description='research':Organization='lab':Fairshare=50
Account - 'product':Description='product':Organization='lab':Fairshare=50
Parent - 'research'
User - 'alice':DefaultAccount='research':Fairshare=1
User - 'bob':DefaultAccount='research':Fairshare=1
Parent - 'product'
User - 'carol':DefaultAccount='product':Fairshare=1
User - 'dave':DefaultAccount='product':Fairshare=1
E

    # The gate and the options of sbatch, as a site installs them. What is governed, whoever uses the cluster writes.
    cp crates/slurm/plugins/job_submit.lua "$LAB/etc/job_submit.lua"
    cc -shared -fPIC -O1 -Wall -Wextra -Werror -o "$LAB/bin/spank_bursar.so" crates/slurm/plugins/spank_bursar.c
    echo "optional $LAB/bin/spank_bursar.so" >"$LAB/etc/plugstack.conf"
}

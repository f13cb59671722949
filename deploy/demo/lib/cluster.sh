# shellcheck shell=bash
# The containers, and what must be true before the cluster counts as up.

start_cluster() {
    mkdir -p "$bin_dir"
    write_compose_env
    stop_other_release
    compose up -d
}

# Containers and the network have fixed names and addresses, so the cluster of another release makes room. Its volumes stay.
stop_other_release() {
    local other
    other=$(dk inspect -f '{{index .Config.Labels "com.docker.compose.project"}}' head 2>/dev/null) || return 0
    [[ $other != "$project" && ($other == "$main_project" || $other == "$main_project"-*) ]] || return 0
    project=$other compose down --timeout 20
}

on_head() { dk exec head "$@"; }

controller_up() { on_head scontrol ping | grep 'is UP' >/dev/null; }

wait_controller() { wait_until 90 "slurmctld answers (docker logs head)" controller_up; }

node_ready() { # idle or busy; a node that somebody set down or draining is asked back, as this is what `up` is for
    local state
    dk exec "$1" demo-ctl slurmd | grep running >/dev/null || return 1
    state=$(on_head sinfo -h -N -p main -n "$1" -o %t)
    # `-`: planned for a job that waits. Other signs behind the word mean trouble.
    case ${state%-} in
    idle | mix | alloc | comp | plnd | resv) return 0 ;;
    down | drain | drng) on_head scontrol update "nodename=$1" state=resume || true ;;
    esac
    return 1
}

wait_nodes() {
    local node
    for node in c1 c2; do
        wait_until 60 "node $node takes jobs (docker logs $node)" node_ready "$node"
    done
}

# From where eirened will call it.
slurmrestd_up() {
    local token
    token=$(on_head scontrol token username=eirene-op lifespan=60)
    # The token goes by standard input, not by argument.
    printf 'header = "X-SLURM-USER-TOKEN: %s"\n' "${token#SLURM_JWT=}" |
        dk exec -i portal curl -sf -m 10 -o /dev/null -K - http://head:6820/openapi/v3
}

wait_slurmrestd() { wait_until 60 "slurmrestd answers" slurmrestd_up; }

have_account() { [[ -n $(on_head sacctmgr -nP show account "$1") ]]; }
have_qos() { [[ -n $(on_head sacctmgr -nP show qos "$1") ]]; }
have_association() { [[ -n $(on_head sacctmgr -nP show assoc "user=$1" "account=$2") ]]; }
cluster_registered() { [[ -n $(on_head sacctmgr -nP show cluster demo) ]]; }

make_accounts() {
    local user
    wait_until 60 "slurmctld is registered with slurmdbd" cluster_registered
    have_account research || on_head sacctmgr -i add account research description=research organization=demo
    # Everybody in slurmdbd needs an account; the service's own can run nothing.
    have_account service || on_head sacctmgr -i add account service description=service organization=demo maxsubmitjobs=0
    for user in ada grace; do
        have_association "$user" research ||
            on_head sacctmgr -i add user "$user" account=research defaultaccount=research
    done
    make_spare
    have_association eirene-op service ||
        on_head sacctmgr -i add user eirene-op account=service defaultaccount=service
    # An operator reads everything and cancels; to drain and resume nodes SLURM wants an administrator.
    on_head sacctmgr -nP show user eirene-op format=adminlevel | grep -i administrator >/dev/null ||
        on_head sacctmgr -i modify user eirene-op set adminlevel=administrator
}

# What is left over, for work that can wait: the account `spare` has the QOS `scavenger` alone, which gives way to `normal` after half a minute.
make_spare() {
    local user
    have_qos scavenger || on_head sacctmgr -i add qos scavenger gracetime=30 preemptmode=requeue
    on_head sacctmgr -nP show qos normal format=preempt | grep -w scavenger >/dev/null || on_head sacctmgr -i modify qos normal set preempt=scavenger
    have_account spare ||
        on_head sacctmgr -i add account spare description=spare organization=demo qos=scavenger defaultqos=scavenger
    for user in ada grace; do
        have_association "$user" spare || on_head sacctmgr -i add user "$user" account=spare
    done
}

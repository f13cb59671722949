//! The reasons that are words of their own.

use eirene_core::Reason;
use eirene_words::say;

/// What a reason word means; none for words about limits and for unknown ones.
pub(super) fn lookup(word: &str) -> Option<Reason> {
    ENTRIES.iter().find(|(words, ..)| words.contains(&word)).map(|(_, code, key)| Reason::new(*code, say(key)))
}

/// SLURM's words, our code, and the key of the sentence: words that mean one thing to a program may still say different things.
type Entry = (&'static [&'static str], &'static str, &'static str);

#[rustfmt::skip]
const ENTRIES: &[Entry] = &[
    (&["None"], "not_considered_yet", "job.not_considered_yet"),

    // Waiting in line.
    (&["Priority"], "priority", "job.priority"),
    (&["Resources"], "waiting_for_resources", "job.waiting_for_resources"),
    (&["SchedDefer"], "priority", "job.priority_in_rounds"),
    (&["BeginTime"], "not_before", "job.not_before"),
    (&["Cleaning"], "cleaning_up", "job.cleaning_up"),
    (&["Prolog"], "nodes_starting", "job.nodes_starting"),
    (&["Dependency"], "dependency", "job.dependency"),
    (&["DependencyNeverSatisfied"], "dependency_impossible", "job.dependency_impossible"),
    (&["JobArrayTaskLimit"], "array_limit", "job.array_limit"),
    (&["Licenses"], "licences", "job.licences"),
    (&["NvidiaImexChannels"], "gpu_channels", "job.gpu_channels"),
    (&["MpiPortsBusy"], "ports_in_use", "job.ports_in_use"),
    (&["MaxPoweredUpNodes"], "powered_nodes_limit", "job.powered_nodes_limit"),
    (&["PowerNotAvail"], "power", "job.power_short"),
    (&["PowerReserved"], "power", "job.power_reserved"),
    (&["FedJobLock"], "federation", "job.federation"),

    // Held.
    (&["JobHeldUser"], "held_by_owner", "job.held_by_owner"),
    (&["JobHeldAdmin"], "held_by_operator", "job.held_by_operator"),
    (&["JobHoldMaxRequeue"], "held_after_restarts", "job.held_after_restarts"),

    // Nodes and partitions.
    (&["ReqNodeNotAvail"], "nodes_not_available", "job.nodes_not_available"),
    (&["NodeDown"], "node_failed", "job.node_failed"),
    (&["FrontEndDown"], "nodes_not_available", "job.entry_node_down"),
    (&["BlockMaxError", "BlockFreeAction"], "nodes_not_available", "job.nodes_with_errors"),
    (&["PartitionDown"], "partition_closed", "job.partition_down"),
    (&["PartitionInactive"], "partition_closed", "job.partition_inactive"),
    (&["PartitionNodeLimit"], "partition_nodes", "job.partition_nodes"),
    (&["PartitionTimeLimit"], "partition_time", "job.partition_time"),
    (&["PartitionConfig"], "partition_rules", "job.partition_rules"),
    (&["MaxMemPerLimit"], "memory_limit", "job.memory_limit"),
    (&["BadConstraints"], "impossible", "job.impossible"),
    (&["Constraints"], "constraints", "job.constraints"),

    // Reservations.
    (&["Reservation"], "reservation", "job.reservation"),
    (&["ReservationDeleted"], "reservation_gone", "job.reservation_removed"),
    (&["ReservationInvalid"], "reservation_gone", "job.reservation_unusable"),

    // Accounts and rules.
    (&["AccountNotAllowed"], "account_not_allowed", "job.account_not_allowed"),
    (&["InvalidAccount"], "account_unknown", "job.account_unknown"),
    (&["QOSNotAllowed"], "quality_not_allowed", "job.quality_not_allowed"),
    (&["InvalidQOS"], "quality_unknown", "job.quality_unknown"),
    (&["QOSUsageThreshold"], "quality_usage", "job.quality_usage"),
    (&["QOSJobLimit"], "limit_quality_most_jobs", "job.quality_jobs"),
    (&["QOSResourceLimit"], "limit_quality_most_resource", "job.quality_resources"),
    (&["QOSTimeLimit"], "limit_quality_most_time", "job.quality_time"),
    (&["AssociationJobLimit"], "limit_account_most_jobs", "job.account_jobs_together"),
    (&["AssociationResourceLimit"], "limit_account_most_resource", "job.account_resources"),
    (&["AssociationTimeLimit"], "limit_account_most_time", "job.account_time"),
    (&["AssocMaxJobsLimit"], "limit_account_most_jobs", "job.account_jobs"),
    (&["AccountingPolicy"], "accounting_policy", "job.accounting_policy"),

    // Burst buffers.
    (&["BurstBufferResources"], "burst_buffer", "job.burst_buffer_in_use"),
    (&["BurstBufferStageIn"], "burst_buffer", "job.burst_buffer_filling"),
    (&["BurstBufferOperation"], "burst_buffer_failed", "job.burst_buffer_failed"),

    // Ends.
    (&["NonZeroExitCode"], "exit_status", "job.exit_status"),
    (&["RaisedSignal"], "signalled", "job.signalled"),
    (&["TimeLimit"], "time_limit", "job.time_limit"),
    (&["DeadLine"], "deadline", "job.deadline"),
    (&["OutOfMemory"], "out_of_memory", "job.out_of_memory"),
    (&["InactiveLimit"], "inactive", "job.inactive"),
    (&["JobLaunchFailure"], "launch_failed", "job.launch_failed"),
    (&["SystemFailure"], "scheduler_failure", "job.scheduler_failure"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_stands_twice() {
        let mut words = ENTRIES.iter().flat_map(|(words, ..)| words.iter()).collect::<Vec<_>>();
        words.sort_unstable();
        let all = words.len();
        words.dedup();
        assert_eq!(words.len(), all);
    }
}

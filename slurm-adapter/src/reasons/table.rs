//! The reasons that are words of their own.

use eirene_core::Reason;

/// What a reason word means; none for words about limits and for unknown ones.
pub(super) fn lookup(word: &str) -> Option<Reason> {
    ENTRIES.iter().find(|(words, ..)| words.contains(&word)).map(|(_, code, text)| Reason::new(*code, *text))
}

type Entry = (&'static [&'static str], &'static str, &'static str);

#[rustfmt::skip]
const ENTRIES: &[Entry] = &[
    (&["None"], "not_considered_yet", "The scheduler has not looked at the job yet. This takes a few seconds."),

    // Waiting in line.
    (&["Priority"], "priority", "Other jobs are ahead in the queue. It starts when its turn comes; a shorter or smaller job may slip in earlier."),
    (&["Resources"], "waiting_for_resources", "What it asks for is in use at the moment. It starts as soon as enough is free; asking for less may be quicker."),
    (&["SchedDefer"], "priority", "The scheduler looks at new jobs in rounds. It is considered in the next one, within minutes."),
    (&["BeginTime"], "not_before", "The job may not start yet, because its start time has not come or it was put back in the queue a moment ago. It waits by itself; after a restart that takes about two minutes."),
    (&["Cleaning"], "cleaning_up", "The job's earlier run is still being cleaned up. It goes back into the queue by itself in a moment."),
    (&["Prolog"], "nodes_starting", "The nodes of the job are being prepared. This can take some minutes."),
    (&["Dependency"], "dependency", "It waits for another job to end. It starts by itself after that."),
    (&["DependencyNeverSatisfied"], "dependency_impossible", "The job it waits for ended in a way that can never let it start. Stop it and start again without that condition."),
    (&["JobArrayTaskLimit"], "array_limit", "As many tasks of this job array run as may run at one time. It starts when one of them ends."),
    (&["Licenses"], "licences", "All software licences it asks for are in use. It starts when one is given back."),
    (&["NvidiaImexChannels"], "gpu_channels", "All channels for memory shared between the GPUs of several nodes are in use. It starts when another job gives one back."),
    (&["MpiPortsBusy"], "ports_in_use", "All network ports set aside for parallel jobs are in use. It starts when other jobs end."),
    (&["MaxPoweredUpNodes"], "powered_nodes_limit", "As many nodes are switched on as may be at one time. It starts when others are switched off."),
    (&["PowerNotAvail"], "power", "There is not enough electric power left for it at the moment. It starts when other jobs end."),
    (&["PowerReserved"], "power", "The electric power it needs is set aside for other jobs. It starts when that is over."),
    (&["FedJobLock"], "federation", "Another cluster of the federation is looking at the job at the moment. This takes a few seconds."),

    // Held.
    (&["JobHeldUser"], "held_by_owner", "The job is held by its owner. Release it with the scheduler's tools, or stop it and start again."),
    (&["JobHeldAdmin"], "held_by_operator", "The job is held by the people who run the cluster. Ask them for the reason, or stop it and start again."),
    (&["JobHoldMaxRequeue"], "held_after_restarts", "The job was restarted too often without success and is held now. Stop it, and tell the people who run the cluster if a new one fails too."),

    // Nodes and partitions.
    (&["ReqNodeNotAvail"], "nodes_not_available", "Nodes that it needs are down, being serviced or set aside for others. It starts when they are back; another partition or GPU type may be quicker."),
    (&["NodeDown"], "node_failed", "A node of the job failed. Start again; if it happens often, tell the people who run the cluster."),
    (&["FrontEndDown"], "nodes_not_available", "The machine through which jobs of this partition start is down. Choose another partition or wait until it is back."),
    (&["BlockMaxError", "BlockFreeAction"], "nodes_not_available", "Part of the machine that it needs reports errors. It waits until they are cleared; tell the people who run the cluster if it stays."),
    (&["PartitionDown"], "partition_closed", "The partition does not start jobs at the moment. Choose another partition or wait until it is open again."),
    (&["PartitionInactive"], "partition_closed", "The partition takes no jobs at the moment. Choose another partition or wait until it is open again."),
    (&["PartitionNodeLimit"], "partition_nodes", "The number of nodes does not fit the partition's limits. Ask for another number of nodes or choose another partition."),
    (&["PartitionTimeLimit"], "partition_time", "The time asked for is longer than the partition allows. Ask for less time or choose another partition."),
    (&["PartitionConfig"], "partition_rules", "The job does not fit the partition's rules. Choose another partition or ask for less."),
    (&["MaxMemPerLimit"], "memory_limit", "It asks for more memory per CPU or node than the cluster allows. Ask for less memory, or for more CPUs with it."),
    (&["BadConstraints"], "impossible", "No node can ever give what it asks for. Ask for less or choose another partition or GPU type."),
    (&["Constraints"], "constraints", "No node can give what it asks for at the moment. It may start when other nodes are back; another partition or GPU type may be quicker."),

    // Reservations.
    (&["Reservation"], "reservation", "It waits for its reservation to begin. It starts by itself then."),
    (&["ReservationDeleted"], "reservation_gone", "The reservation it belonged to was removed. Stop it and start again without that reservation."),
    (&["ReservationInvalid"], "reservation_gone", "The reservation it belongs to cannot be used. Stop it and start again without that reservation."),

    // Accounts and rules.
    (&["AccountNotAllowed"], "account_not_allowed", "The account may not use this partition. Choose another project or another partition."),
    (&["InvalidAccount"], "account_unknown", "The account is not known to the cluster or you are no member of it. Choose another project, or ask to be added."),
    (&["QOSNotAllowed"], "quality_not_allowed", "The quality of service may not be used in this partition. Choose another quality of service or another partition."),
    (&["InvalidQOS"], "quality_unknown", "The quality of service is not known or you may not use it. Choose another quality of service, or ask for the right to use it."),
    (&["QOSUsageThreshold"], "quality_usage", "Your use so far is above what the quality of service allows. Wait until older use is forgotten, or choose another quality of service."),
    (&["QOSJobLimit"], "limit_quality_most_jobs", "As many jobs of the quality of service run as may run at one time. It starts when one of them ends."),
    (&["QOSResourceLimit"], "limit_quality_most_resource", "The jobs of the quality of service use as much as they may. It starts when one of them ends; asking for less may help."),
    (&["QOSTimeLimit"], "limit_quality_most_time", "The time asked for is longer than the quality of service allows. Ask for less time or choose another quality of service."),
    (&["AssociationJobLimit"], "limit_account_most_jobs", "As many of your account's jobs run as may run at one time. It starts when one of them ends."),
    (&["AssociationResourceLimit"], "limit_account_most_resource", "Your account's jobs use as much as they may. It starts when one of them ends; asking for less may help."),
    (&["AssociationTimeLimit"], "limit_account_most_time", "The time asked for is longer than your account allows. Ask for less time or choose another project."),
    (&["AssocMaxJobsLimit"], "limit_account_most_jobs", "As many of your jobs run as your account allows at one time. It starts when one of them ends."),
    (&["AccountingPolicy"], "accounting_policy", "It is against a rule of your account or its quality of service. Ask for less, or ask the people who run the cluster which rule it is."),

    // Burst buffers.
    (&["BurstBufferResources"], "burst_buffer", "The fast storage it asks for is in use. It starts when other jobs give it back."),
    (&["BurstBufferStageIn"], "burst_buffer", "Its data is being copied to the fast storage. It starts by itself after that."),
    (&["BurstBufferOperation"], "burst_buffer_failed", "Copying its data to or from the fast storage failed. Start again, and tell the people who run the cluster if that fails too."),

    // Ends.
    (&["NonZeroExitCode"], "exit_status", "The job's program ended with an error. Its log says more."),
    (&["RaisedSignal"], "signalled", "The job's program was ended by a signal. Its log may say more."),
    (&["TimeLimit"], "time_limit", "The job reached its time limit. Ask for more time next time."),
    (&["DeadLine"], "deadline", "The job could not end before its deadline. Start again with a later one."),
    (&["OutOfMemory"], "out_of_memory", "The job used more memory than it had. Ask for more memory next time."),
    (&["InactiveLimit"], "inactive", "The job was ended because nothing happened in it for too long. Start again when you need it."),
    (&["JobLaunchFailure"], "launch_failed", "The job could not be launched on its nodes. Start again, and tell the people who run the cluster if that fails too."),
    (&["SystemFailure"], "scheduler_failure", "The scheduler failed while it worked on the job. Start again, and tell the people who run the cluster if that fails too."),
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

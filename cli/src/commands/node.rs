//! `eirene admin node`: nodes out of service, back again, and what they were.

use clap::Subcommand;
use eirene_core::{DrainReason, NodeName};
use serde_json::{Value, json};

use super::{done, text_of};
use crate::api::Api;
use crate::{output, times};

#[derive(Debug, Subcommand)]
pub(crate) enum AdminNode {
    /// Have a node take no more jobs; those it runs go on
    Drain {
        /// Its name
        node: NodeName,
        /// Why; people see it on the cluster, with your name behind it
        #[arg(long)]
        reason: DrainReason,
    },
    /// Have a drained or down node take jobs again
    Resume {
        /// Its name
        node: NodeName,
    },
    /// Show what a node was, newest first
    History {
        /// Its name
        node: NodeName,
    },
}

pub(super) async fn run(api: &Api, verb: AdminNode, as_json: bool) -> anyhow::Result<()> {
    match verb {
        AdminNode::Drain { node, reason } => {
            let answer = api.post(&format!("nodes/{node}/drain"), &json!({"reason": reason})).await?;
            done(&answer, as_json, &format!("{node} is being drained; `eirene node list` shows it soon."))
        }
        AdminNode::Resume { node } => {
            let answer = api.post(&format!("nodes/{node}/resume"), &json!({})).await?;
            done(&answer, as_json, &format!("{node} is being brought back; `eirene node list` shows it soon."))
        }
        AdminNode::History { node } => {
            let changes = api.list(&format!("nodes/{node}/history")).await?;
            if as_json {
                return output::json(&Value::Array(changes));
            }
            let row = |change: &Value| {
                let since = text_of(change, "at");
                let since = since.parse().map_or(since, times::local);
                vec![since, text_of(change, "state").replace('_', " "), text_of(change, "reason")]
            };
            output::table(
                &["SINCE", "STATE", "REASON"],
                changes.iter().map(row).collect(),
                "Nothing has been written down yet.",
            )
        }
    }
}

//! `eirene admin`: people, everybody's sessions and runs, nodes, spaces and the storage.

use serde_json::{Value, json};

use super::{alert, done, efficiency, jobs, node, password, space, storage, text_of};
use crate::api::{Api, Noun, Target};
use crate::arguments::admin::{Admin, AdminRun, AdminSession, AdminUser};
use crate::{output, times};

pub(super) async fn run(api: &Api, verb: Admin, as_json: bool) -> anyhow::Result<()> {
    match verb {
        Admin::User(verb) => user(api, verb, as_json).await,
        Admin::Session(AdminSession::List { all }) => jobs::list(api, Noun::Session, all, true, as_json).await,
        Admin::Session(AdminSession::Stop { session, yes }) => {
            end(api, Target { noun: Noun::Session, id: session }, "Stop", yes, as_json).await
        }
        Admin::Alert(verb) => alert::run_as_admin(api, verb, as_json).await,
        Admin::Efficiency(which) => efficiency::report(api, &which, as_json).await,
        Admin::Node(verb) => node::run(api, verb, as_json).await,
        Admin::Storage(verb) => storage::run(api, verb, as_json).await,
        Admin::Run(AdminRun::List { all }) => jobs::list(api, Noun::Run, all, true, as_json).await,
        Admin::Run(AdminRun::Cancel { run, yes }) => {
            end(api, Target { noun: Noun::Run, id: run }, "Cancel", yes, as_json).await
        }
        Admin::Space(verb) => space::run(api, verb, as_json).await,
    }
}

/// Ends somebody's session or run, once more asked for.
async fn end(api: &Api, target: Target, verb: &str, yes: bool, as_json: bool) -> anyhow::Result<()> {
    let found = api.job(target).await?;
    if !yes {
        output::confirm(&format!("{verb} `{}` of {}?", output::printable(&found.name), found.owner))?;
    }
    jobs::end(api, target, false, as_json).await
}

async fn user(api: &Api, verb: AdminUser, as_json: bool) -> anyhow::Result<()> {
    match verb {
        AdminUser::Add { username, admin, password_stdin } => {
            let mut body = json!({"username": username, "role": if admin { "admin" } else { "researcher" }});
            if password_stdin {
                body["password"] = Value::String(password(true, "")?);
            }
            let answer = api.post("users", &body).await?;
            password_answer(&answer, as_json, &format!("Added {username}."))
        }
        AdminUser::List => {
            let users = api.list("users").await?;
            if as_json {
                return output::json(&Value::Array(users));
            }
            let rows = users
                .iter()
                .map(|user| {
                    let mut row = ["username", "role", "state", "uid"].map(|key| text_of(user, key)).to_vec();
                    let since = text_of(user, "created_at");
                    row.push(since.parse().map_or(since, times::local));
                    row
                })
                .collect();
            output::table(&["NAME", "ROLE", "STATE", "UID", "SINCE"], rows, "Nobody has an account yet.")
        }
        AdminUser::Disable { username, yes } => {
            if !yes {
                output::confirm(&format!("Disable {username}? Tokens and log-ins end at once; sessions go on."))?;
            }
            let answer = api.post(&format!("users/{username}/disable"), &json!({})).await?;
            done(&answer, as_json, &format!("Disabled {username}."))
        }
        AdminUser::Enable { username } => {
            let answer = api.post(&format!("users/{username}/enable"), &json!({})).await?;
            done(&answer, as_json, &format!("Enabled {username}."))
        }
        AdminUser::ResetPassword { username, password_stdin, yes } => {
            if !yes && !password_stdin {
                output::confirm(&format!("Give {username} a new password? The old one ends at once."))?;
            }
            let body = if password_stdin { json!({"password": password(true, "")?}) } else { json!({}) };
            let answer = api.post(&format!("users/{username}/reset-password"), &body).await?;
            password_answer(&answer, as_json, &format!("{username} has a new password."))
        }
    }
}

/// A generated password is shown once, alone on standard output.
fn password_answer(answer: &Value, as_json: bool, sentence: &str) -> anyhow::Result<()> {
    if as_json {
        return output::json(answer);
    }
    output::say(sentence);
    if let Some(password) = answer.get("password").and_then(Value::as_str) {
        output::say("Password, shown once:");
        output::line(password)?;
    }
    Ok(())
}

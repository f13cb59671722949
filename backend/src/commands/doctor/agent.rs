//! The agent and its GPU helper, as far as they can be seen from here: what counts is what the nodes see, and the portal need not see that too.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use eirene_services::config::Config;

use super::Finding;

/// The GPU helper, which the agent looks for beside itself.
const GPU_HELPER: &str = "eirene-gpu";

/// Whether the agent is where the nodes are told to find it, with the GPU helper beside it. Whether the cluster `has_gpus` may not be known.
pub(super) async fn agent(config: &Config, has_gpus: Option<bool>) -> Finding {
    let path = &config.agent.path;
    let (name, helper) = (path.display(), path.with_file_name(GPU_HELPER));
    match is_program(path).await {
        Ok(Some(true)) => {}
        // A site may let some people alone run it.
        Ok(Some(false)) => return Finding::Doubtful(format!("`{name}` cannot be run by everybody: chmod 0755 {name}")),
        Ok(None) => {
            return Finding::Good(format!(
                "`{name}` is not seen from here, and need not be; nodes have to see it, and `{GPU_HELPER}` beside it where they have GPUs"
            ));
        }
        Err(error) => return Finding::Doubtful(format!("`{name}`: {error}")),
    }
    let helper_name = helper.display();
    match is_program(&helper).await {
        Ok(Some(true)) => Finding::Good(format!("`{name}` is in place, and the GPU helper beside it")),
        Ok(_) if has_gpus == Some(false) => Finding::Good(format!("`{name}` is in place; no node has GPUs")),
        Ok(Some(false)) => {
            Finding::Doubtful(format!("`{helper_name}` cannot be run by everybody: chmod 0755 {helper_name}"))
        }
        Ok(None) => Finding::Doubtful(format!(
            "`{helper_name}` is missing, so nobody tells what sessions' GPUs do: put it there, as the first step of the installation says"
        )),
        Err(error) => Finding::Doubtful(format!("`{helper_name}`: {error}")),
    }
}

/// Whether a file may be run by everybody; none where it is not there.
async fn is_program(path: &Path) -> std::io::Result<Option<bool>> {
    match tokio::fs::metadata(path).await {
        Ok(metadata) => Ok(Some(metadata.is_file() && metadata.permissions().mode() & 0o005 == 0o005)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use super::*;

    #[tokio::test]
    async fn a_gpu_helper_that_is_missing_is_told_of_where_there_may_be_gpus() {
        let dir = tempfile::tempdir().unwrap();
        let agent_path = dir.path().join("eirene-agent");
        let text = format!(
            "[server]\nportal_url = \"https://a.b\"\napps_domain = \"c.d\"\n[tunnel]\nadvertise = \"a:1\"\n[agent]\npath = {agent_path:?}\n"
        );
        let config = Config::from_text(&text).unwrap();
        let put = |name: &str, mode| {
            let path = dir.path().join(name);
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        };
        let unseen = agent(&config, Some(true)).await;
        assert!(matches!(&unseen, Finding::Good(text) if text.contains("not seen from here")), "{unseen:?}");
        put("eirene-agent", 0o700);
        let private = agent(&config, Some(true)).await;
        assert!(matches!(&private, Finding::Doubtful(text) if text.contains("chmod 0755")), "{private:?}");
        put("eirene-agent", 0o755);
        for has_gpus in [Some(true), None] {
            let missing = agent(&config, has_gpus).await;
            assert!(matches!(&missing, Finding::Doubtful(text) if text.contains("is missing")), "{missing:?}");
        }
        let without = agent(&config, Some(false)).await;
        assert!(matches!(&without, Finding::Good(text) if text.contains("no node has GPUs")), "{without:?}");
        put("eirene-gpu", 0o600);
        let private = agent(&config, Some(true)).await;
        assert!(matches!(&private, Finding::Doubtful(text) if text.contains("chmod 0755")), "{private:?}");
        put("eirene-gpu", 0o755);
        let whole = agent(&config, Some(true)).await;
        assert!(matches!(&whole, Finding::Good(text) if text.contains("the GPU helper beside it")), "{whole:?}");
    }
}

//! Reading the configuration and refusing what cannot work.

use std::path::{Path, PathBuf};

use figment::Figment;
use figment::providers::{Env, Format as _, Toml};

use super::{Adapter, Config};

/// A configuration with every key, its default and what it is for.
pub const SAMPLE: &str = include_str!("../../../../deploy/config.example.toml");

/// Why there is no usable configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("`{}` cannot be read", path.display())]
    File {
        /// File.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// The text is not understood: wrong type, unknown key, missing key.
    #[error("the configuration is not understood: {0}")]
    Shape(Box<figment::Error>),
    /// Understood, but it cannot work.
    #[error("`{key}`: {message}")]
    Value {
        /// Key.
        key: &'static str,
        /// One sentence.
        message: String,
    },
}

impl Config {
    /// Reads `path` and the environment.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| ConfigError::File { path: path.to_owned(), source })?;
        let environment = Env::prefixed("EIRENE_").filter(|key| key.as_str().contains("__")).split("__");
        Self::from_figment(&Figment::new().merge(Toml::string(&text)).merge(environment))
    }

    /// Reads a text alone.
    pub fn from_text(text: &str) -> Result<Self, ConfigError> {
        Self::from_figment(&Figment::new().merge(Toml::string(text)))
    }

    fn from_figment(figment: &Figment) -> Result<Self, ConfigError> {
        let config: Self = figment.extract().map_err(|error| ConfigError::Shape(Box::new(error)))?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let wrong = |key, message: String| Err(ConfigError::Value { key, message });
        if !is_origin(self.portal_origin()) {
            return wrong(
                "server.portal_url",
                "a scheme, a host and perhaps a port, such as `https://eirene.example.org`".into(),
            );
        }
        if !is_authority(&self.server.apps_domain) {
            return wrong("server.apps_domain", "a domain and perhaps a port, such as `apps.example.org`".into());
        }
        if !is_authority(&self.tunnel.advertise) || !self.tunnel.advertise.contains(':') {
            return wrong("tunnel.advertise", "`host:port`, as compute nodes reach it".into());
        }
        if self.server.tls_cert.is_some() != self.server.tls_key.is_some() {
            return wrong("server.tls_cert", "`tls_cert` and `tls_key` belong together".into());
        }
        if self.database.url.is_some() && self.database.url_file.is_some() {
            return wrong("database.url", "give `url` or `url_file`, not both".into());
        }
        if self.slurm.adapter == Adapter::Slurmrestd && !self.slurm.slurmrestd_url.starts_with("http") {
            return wrong("slurm.slurmrestd_url", "an address that begins with `http://` or `https://`".into());
        }
        if !(1..=300).contains(&self.slurm.poll_interval_s) {
            return wrong("slurm.poll_interval_s", "1 to 300".into());
        }
        if !(10..=3600).contains(&self.agent.ready_within_s) {
            return wrong("agent.ready_within_s", "10 to 3600".into());
        }
        let scratches = [("scratch.node", &self.scratch.node), ("scratch.beeond", &self.scratch.beeond)];
        let scratches = scratches.into_iter().filter_map(|(key, path)| Some((key, path.as_ref()?)));
        let others = [
            ("server.state_dir", &self.server.state_dir),
            ("launcher.socket", &self.launcher.socket),
            ("agent.path", &self.agent.path),
        ];
        for (key, path) in others.into_iter().chain(scratches) {
            if !path.is_absolute() {
                return wrong(key, format!("`{}` is not an absolute path", path.display()));
            }
        }
        self.storage.check()?;
        self.spaces.check()?;
        self.files.check()?;
        self.alerts.check()?;
        self.prometheus.check(self.metrics.sessions)?;
        self.traces.check()?;
        self.zabbix.check()?;
        if !(30..=7200).contains(&self.scratch.stage_out_reserve_s) {
            return wrong("scratch.stage_out_reserve_s", "30 to 7200".into());
        }
        let samples = &self.samples;
        if !(16..=1_048_576).contains(&samples.disk_mib) {
            return wrong("samples.disk_mib", "16 to 1048576".into());
        }
        if !(8..=131_072).contains(&samples.memory_mib) {
            return wrong("samples.memory_mib", "8 to 131072".into());
        }
        if !(1..=3650).contains(&samples.keep_days) {
            return wrong("samples.keep_days", "1 to 3650".into());
        }
        if !(samples.keep_days..=3650).contains(&samples.keep_minutes_days) {
            return wrong("samples.keep_minutes_days", "`keep_days` to 3650".into());
        }
        for (at, bind) in self.images.binds.iter().enumerate() {
            if self.images.binds[..at].iter().any(|other| other.target() == bind.target()) {
                return wrong("images.binds", format!("two of them are seen as `{}`", bind.target()));
            }
        }
        for (at, root) in self.spaces.roots.iter().enumerate() {
            let Some(seen) = &root.mounted_at else { continue };
            let bound = self.images.binds.iter().map(|bind| (Path::new(bind.target()), bind.target()));
            let before = self.spaces.roots[..at]
                .iter()
                .filter_map(|root| Some((root.mounted_at.as_deref()?, root.name.as_str())));
            // Below it other spaces are seen, so what lies in it is as bad as what lies on it.
            if let Some((_, other)) =
                bound.chain(before).find(|(other, _)| other.starts_with(seen) || seen.starts_with(other))
            {
                let name = &root.name;
                return wrong("spaces.roots", format!("`{name}` is seen at `{}`, and so is `{other}`", seen.display()));
            }
        }
        Ok(())
    }
}

fn is_origin(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, rest)| matches!(scheme, "http" | "https") && is_authority(rest))
}

fn is_authority(text: &str) -> bool {
    let plain = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'-' | b':'));
    plain && !text.starts_with(['.', ':']) && text.parse::<http::uri::Authority>().is_ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::{Size, StorageAdapter};

    const SMALL: &str = "[server]\nportal_url = \"https://e.example.org\"\napps_domain = \"apps.example.org\"\n[tunnel]\nadvertise = \"e.example.org:7443\"\n";

    /// The sample with every commented-out setting switched on.
    fn full_sample() -> String {
        let setting = |line: &str| {
            line.strip_prefix("#").is_some_and(|rest| {
                rest.split_once(" = ").is_some_and(|(key, _)| key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'))
            })
        };
        SAMPLE
            .lines()
            .map(|line| if setting(line) { &line[1..] } else { line })
            .fold(String::new(), |text, line| text + line + "\n")
    }

    #[test]
    fn the_sample_is_a_good_configuration() {
        let config = Config::from_text(SAMPLE).unwrap();
        assert_eq!(config.portal_origin(), "https://eirene.example.org");
    }

    #[test]
    fn the_sample_names_every_key_there_is_and_no_other() {
        let known = [
            "server.listen",
            "server.portal_url",
            "server.apps_domain",
            "server.state_dir",
            "server.tls_cert",
            "server.tls_key",
            "server.trusted_proxies",
            "database.url",
            "database.url_file",
            "tunnel.listen",
            "tunnel.advertise",
            "launcher.socket",
            "slurm.adapter",
            "slurm.slurmrestd_url",
            "slurm.service_account",
            "slurm.cluster",
            "slurm.account",
            "slurm.qos",
            "slurm.poll_interval_s",
            "agent.path",
            "agent.ready_within_s",
            "agent.stop_within_s",
            "images.binds",
            "storage.adapter",
            "storage.poll_interval_s",
            "storage.near_full_percent",
            "spaces.roots",
            "spaces.warn_percent",
            "files.transfers_per_person",
            "files.transfers",
            "files.idle_s",
            "files.upload_days",
            "scratch.node",
            "scratch.beeond",
            "scratch.stage_out_reserve_s",
            "samples.disk_mib",
            "samples.memory_mib",
            "samples.keep_days",
            "samples.keep_minutes_days",
            "metrics.listen",
            "metrics.allow",
            "metrics.sessions",
            "prometheus.url",
            "prometheus.bearer_token_file",
            "prometheus.basic_auth_file",
            "prometheus.ca_file",
            "prometheus.timeout_s",
            "prometheus.scrape_interval_s",
            "prometheus.labels",
            "alerts.webhook_url",
            "alerts.webhook_url_file",
            "alerts.webhook_secret_file",
            "alerts.keep_days",
            "alerts.rules",
            "zabbix.server",
            "zabbix.host",
            "zabbix.period_s",
            "zabbix.sessions",
            "zabbix.tls",
            "zabbix.tls_ca",
            "zabbix.tls_cert",
            "zabbix.tls_key",
            "zabbix.tls_name",
            "zabbix.psk_identity",
            "zabbix.psk_file",
            "zabbix.sender",
            "zabbix.api_url",
            "zabbix.api_plain",
            "zabbix.api_token_file",
            "zabbix.api_ca",
            "zabbix.node_host",
            "zabbix.history",
            "limits.live_sessions",
            "limits.live_runs",
            "limits.keep_events_days",
            "limits.keep_logs_days",
            "log.filter",
            "log.format",
            "traces.url",
            "traces.bearer_token_file",
            "traces.ca_file",
            "traces.sample",
        ];
        let table: toml::Table = full_sample().parse().unwrap();
        let mut found = BTreeSet::new();
        for (section, keys) in &table {
            found.extend(keys.as_table().unwrap().keys().map(|key| format!("{section}.{key}")));
        }
        assert_eq!(found, known.into_iter().map(str::to_owned).collect());
        // Every key of the sample is one the types know, with a value of the right type.
        let mut parsed = table;
        parsed["database"].as_table_mut().unwrap().remove("url_file");
        parsed["alerts"].as_table_mut().unwrap().remove("webhook_url_file");
        parsed["prometheus"].as_table_mut().unwrap().remove("basic_auth_file");
        parsed["metrics"].as_table_mut().unwrap().insert("sessions".into(), toml::Value::Boolean(true));
        Config::from_text(&toml::to_string(&parsed).unwrap()).unwrap();
        // And the list above is all the types know: an unknown key is answered with the known ones.
        for section in [
            "server",
            "database",
            "tunnel",
            "launcher",
            "slurm",
            "agent",
            "images",
            "storage",
            "spaces",
            "files",
            "samples",
            "metrics",
            "prometheus",
            "alerts",
            "limits",
            "log",
            "traces",
            "zabbix",
        ] {
            let mut table: toml::Table = SMALL.parse().unwrap();
            let entry = table.entry(section).or_insert_with(|| toml::Value::Table(toml::Table::new()));
            entry.as_table_mut().unwrap().insert("nonsense".into(), toml::Value::Integer(1));
            let error = Config::from_text(&toml::to_string(&table).unwrap()).unwrap_err().to_string();
            for key in error
                .split('`')
                .skip(1)
                .step_by(2)
                .filter(|word| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'))
            {
                let key = format!("{section}.{key}");
                assert!(key.ends_with(".nonsense") || known.contains(&key.as_str()), "{key} is not in the sample");
            }
        }
    }

    #[test]
    fn what_cannot_work_is_refused_with_its_key() {
        let root = |bind: &str, at: &str| {
            format!(
                "[images]\nbinds = [\"/b:{bind}\"]\n[spaces]\nroots = [{{ name = \"project\", kind = \"project\", title = \"P\", \
                 path = \"/p\", mounted_at = \"{at}\" }}]\n[tunnel]"
            )
        };
        for (from, to, key) in [
            ("https://e.example.org", "e.example.org", "server.portal_url"),
            ("https://e.example.org", "https://e.example.org/x", "server.portal_url"),
            ("\"apps.example.org\"", "\"apps.example.org/\"", "server.apps_domain"),
            (":7443", "", "tunnel.advertise"),
            ("[tunnel]", "tls_cert = \"/a\"\n[tunnel]", "server.tls_cert"),
            ("[tunnel]", "state_dir = \"here\"\n[tunnel]", "server.state_dir"),
            ("[tunnel]", "[slurm]\npoll_interval_s = 0\n[tunnel]", "slurm.poll_interval_s"),
            ("[tunnel]", "[slurm]\nqos = \"a b\"\n[tunnel]", "slurm.qos"),
            ("[tunnel]", "[slurm]\naccount = \"--uid=0\"\n[tunnel]", "slurm.account"),
            ("[tunnel]", "[images]\nbinds = [\"/a\", \"b\"]\n[tunnel]", "images.binds"),
            ("[tunnel]", "[images]\nbinds = [\"/a\", \"/b:/a:ro\"]\n[tunnel]", "images.binds"),
            ("[tunnel]", "[storage]\nadapter = \"beegfs9\"\n[tunnel]", "beegfs9"),
            ("[tunnel]", root("/data", "/data/x").as_str(), "spaces.roots"),
            ("[tunnel]", root("/data/x", "/data").as_str(), "spaces.roots"),
            ("[tunnel]", root("/data", "/tmp").as_str(), "spaces.roots"),
            ("[tunnel]", root("/data", "data").as_str(), "spaces.roots"),
            ("[tunnel]", root("/data", "/a:b").as_str(), "spaces.roots"),
            ("[tunnel]", "[storage]\npoll_interval_s = 1\n[tunnel]", "storage.poll_interval_s"),
            ("[tunnel]", "[storage]\nnear_full_percent = [5, 10]\n[tunnel]", "storage.near_full_percent"),
            ("[tunnel]", "[spaces]\nwarn_percent = [80, 100]\n[tunnel]", "spaces.warn_percent"),
            ("[tunnel]", "[files]\ntransfers = 4\n[tunnel]", "files.transfers"),
            ("[tunnel]", "[files]\nidle_s = 0\n[tunnel]", "files.idle_s"),
            ("[tunnel]", "[files]\nupload_days = 0\n[tunnel]", "files.upload_days"),
            ("[tunnel]", "[samples]\nmemory_mib = 7\n[tunnel]", "samples.memory_mib"),
        ] {
            let text = SMALL.replacen(from, to, 1);
            assert_ne!(text, SMALL);
            let error = Config::from_text(&text).unwrap_err();
            assert!(error.to_string().contains(key), "{error}");
        }
        assert!(matches!(Config::from_text("[server]\nlistn = 1"), Err(ConfigError::Shape(_))));
    }

    #[test]
    fn binds_and_defaults_of_submits_are_read() {
        let text = format!(
            "{SMALL}[slurm]\naccount = \"physics\"\nqos = \"normal\"\n[images]\nbinds = [\"/scratch\", \"/data:/data:ro\"]\n"
        );
        let config = Config::from_text(&text).unwrap();
        let binds: Vec<_> =
            config.images.binds.iter().map(|bind| (bind.source(), bind.target(), bind.is_writable())).collect();
        assert_eq!(binds, [("/scratch", "/scratch", true), ("/data", "/data", false)]);
        assert_eq!(config.slurm.account.unwrap().as_str(), "physics");
        assert_eq!(config.slurm.qos.unwrap().as_str(), "normal");
        let plain = Config::from_text(SMALL).unwrap();
        assert!(plain.images.binds.is_empty() && plain.slurm.account.is_none() && plain.slurm.qos.is_none());
    }

    #[test]
    fn the_storage_is_any_mounted_file_system_unless_it_is_named() {
        let adapter = |section: &str| Config::from_text(&format!("{SMALL}{section}")).unwrap().storage.adapter;
        assert_eq!(adapter(""), StorageAdapter::Posix);
        assert_eq!(adapter("[storage]\nadapter = \"beegfs7\"\n"), StorageAdapter::Beegfs7);
        assert_eq!(adapter("[storage]\nadapter = \"beegfs8\"\n"), StorageAdapter::Beegfs8);
    }

    /// A configuration with these roots.
    fn with_roots(roots: &[&str]) -> Result<Config, ConfigError> {
        Config::from_text(&format!("{SMALL}[spaces]\nroots = [{}]\n", roots.join(", ")))
    }

    #[test]
    fn roots_of_spaces_are_read_and_what_cannot_work_is_refused_by_name() {
        let scratch =
            r#"{ name = "scratch", kind = "scratch", per = "person", title = "Scratch", path = "/b/scratch" }"#;
        let data = r#"{ name = "data", kind = "shared", title = "Data sets", path = "/b/data", dry_run = false }"#;
        let kept = scratch.replacen("title", r#"limit = "500GiB", limit_files = 7, lifetime_days = 15, title"#, 1);
        let kept = with_roots(&[&kept]).unwrap().spaces.roots.remove(0);
        assert_eq!((kept.limit, kept.limit_files, kept.lifetime_days), (Some(Size(500 << 30)), Some(7), Some(15)));
        let config = with_roots(&[scratch, data]).unwrap();
        let [scratch_root, data_root] = &config.spaces.roots[..] else { panic!("{:?}", config.spaces) };
        assert!(scratch_root.is_writable() && !data_root.is_writable());
        assert!(scratch_root.policy().dry_run && !data_root.policy().dry_run);
        assert!(!scratch_root.owner_limits, "nobody is limited for a space unless that is said");
        let by_owner = with_roots(&[&scratch.replacen("title", "owner_limits = true, title", 1)]).unwrap();
        assert!(by_owner.spaces.roots[0].owner_limits);
        assert_eq!(scratch_root.policy().warn_days, [14, 3, 1]);
        assert_eq!(scratch_root.old_files(), None);
        let old = scratch.replacen("title", "old_files = { days = 90 }, title", 1);
        let old = with_roots(&[&old]).unwrap().spaces.roots.remove(0).old_files().unwrap();
        assert_eq!((old.days, old.warn_days, old.dry_run), (90, 14, true), "nothing is removed until it is said");
        let of_groups = scratch.replacen("per = \"person\"", "old_files = { days = 90 }", 1);
        assert!(with_roots(&[&of_groups]).unwrap().spaces.roots[0].old_files().is_some(), "each member's are theirs");
        for (from, to) in [
            ("\"scratch\", kind", "\"home\", kind"),
            ("kind = \"scratch\"", "kind = \"home\""),
            ("kind = \"scratch\"", "kind = \"project\""),
            ("/b/scratch", "b/scratch"),
            ("/b/scratch", "/b/../scratch"),
            ("/b/scratch", "/"),
            ("/b/scratch", "/b"),
            ("/b/scratch", "/b/data/x"),
            ("title", "warn_days = [1, 3], title"),
            ("title", "warn_days = [0], title"),
            ("title", "grace_days = 0, title"),
            ("title", "old_files = { days = 6 }, title"),
            ("title", "old_files = { days = 3651 }, title"),
            ("title", "old_files = { days = 90, warn_days = 0 }, title"),
            ("title", "old_files = { days = 90, warn_days = 366 }, title"),
            ("kind = \"scratch\", per = \"person\"", "kind = \"shared\", old_files = { days = 90 }"),
            ("title", "limit = \"0G\", title"),
            ("title", "limit = \"9999999T\", title"),
            ("title", "limit_files = 0, title"),
            ("title", "lifetime_days = 0, title"),
            ("title", "lifetime_days = 14, title"),
            ("title", "lifetime_days = 3651, title"),
            ("per = \"person\"", "limit = \"1G\""),
            ("per = \"person\"", "lifetime_days = 90"),
            ("name = \"scratch\"", "name = \"data\""),
        ] {
            let changed = scratch.replacen(from, to, 1);
            assert_ne!(changed, scratch);
            let error = with_roots(&[data, &changed]).unwrap_err();
            assert!(error.to_string().starts_with("`spaces.roots`: "), "{changed}: {error}");
        }
        let sizes =
            ["", "G", "1", "-1G", "1.5G", "1K", "1 G", "99999999999T"].map(|size| format!("limit = \"{size}\", title"));
        let shapes = ["quota = 1, title", "per = \"everybody\", title", "limit = 5, title"];
        for shape in shapes.into_iter().chain(sizes.iter().map(String::as_str)) {
            let changed = scratch.replacen("per = \"person\", ", "", 1).replacen("title", shape, 1);
            assert!(matches!(with_roots(&[&changed]), Err(ConfigError::Shape(_))), "{changed}");
        }
    }

    #[test]
    fn a_session_has_an_origin_of_its_own() {
        let mut config = Config::from_text(SMALL).unwrap();
        let session = eirene_core::SessionId::generate();
        assert_eq!(config.session_origin(session), format!("https://{session}.apps.example.org"));
        config.server.portal_url = "http://eirene.localhost:8080/".into();
        assert_eq!(config.portal_origin(), "http://eirene.localhost:8080");
        assert_eq!(config.apps_scheme(), "http");
        assert_eq!(config.portal_authority(), "eirene.localhost:8080");
    }

    #[test]
    fn the_database_address_may_lie_in_a_file() {
        use secrecy::ExposeSecret as _;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("url");
        std::fs::write(&file, "postgres://u:p@h/d\n").unwrap();
        let config = Config::from_text(&format!("{SMALL}[database]\nurl_file = {file:?}\n")).unwrap();
        assert_eq!(config.database_url().unwrap().expose_secret(), "postgres://u:p@h/d");
        assert!(!format!("{config:?}").contains("u:p"));
        let beside = Config::from_text(SMALL).unwrap();
        assert_eq!(beside.database_url().unwrap().expose_secret(), "sqlite:///var/lib/eirene/eirene.db");
    }

    #[test]
    fn certificates_are_those_that_are_used_each_once() {
        let files = |more: &str| {
            let config = Config::from_text(&format!("{SMALL}{more}")).unwrap();
            let files = config.certificates();
            files.iter().map(|file| (file.key, file.path.to_str().unwrap().to_owned(), file.is_ca)).collect::<Vec<_>>()
        };
        assert!(files("").is_empty());
        let zabbix =
            "[zabbix]\nserver = \"z.example.org\"\ntls_ca = \"/c/ca\"\ntls_cert = \"/c/own\"\ntls_key = \"/c/key\"\n";
        assert!(files(zabbix).is_empty(), "it is spoken to plainly");
        let all =
            format!("{zabbix}tls = \"certificate\"\n[traces]\nurl = \"https://t.example.org\"\nca_file = \"/c/ca\"\n");
        let expected = [("zabbix.tls_cert", "/c/own".to_owned(), false), ("zabbix.tls_ca", "/c/ca".to_owned(), true)];
        assert_eq!(files(&all), expected, "the same file is one");
    }
}

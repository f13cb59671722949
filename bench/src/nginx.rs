//! nginx as the peer: one hop to a unix socket, or two hops in a row with TLS between them. Tuned as one would for this: all
//! connections kept alive, buffers for a 1 MiB answer, no access log, no authorisation.

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use tokio::process::Command;

use crate::process::{Answers, Server, free_address};

/// Certificate and key for the way between two hops.
pub(crate) struct Tls {
    certificate: String,
    key: String,
}

impl Tls {
    /// Makes a certificate of its own for `bench.localhost`.
    pub(crate) fn new(dir: &Path) -> anyhow::Result<Self> {
        let made = rcgen::generate_simple_self_signed(["bench.localhost".to_owned()])?;
        let (certificate, key) = (dir.join("nginx.crt"), dir.join("nginx.key"));
        std::fs::write(&certificate, made.cert.pem())?;
        std::fs::write(&key, made.signing_key.serialize_pem())?;
        Ok(Self { certificate: certificate.display().to_string(), key: key.display().to_string() })
    }
}

/// One hop to a unix socket.
pub(crate) async fn single(upstream: &Path, dir: &Path) -> anyhow::Result<(Server, SocketAddr)> {
    let address = free_address()?;
    let config = config(&format!("listen {address};"), &format!("unix:{}", upstream.display()), "http", "");
    let server = start("nginx", &config, address, dir).await?;
    Ok((server, address))
}

/// Two hops in a row, TLS between them.
pub(crate) async fn double(upstream: &Path, tls: &Tls, dir: &Path) -> anyhow::Result<([Server; 2], SocketAddr)> {
    let (first, second) = (free_address()?, free_address()?);
    let Tls { certificate, key } = tls;
    let listen = format!(
        "listen {second} ssl; ssl_certificate {certificate}; ssl_certificate_key {key}; ssl_protocols TLSv1.3;"
    );
    let inner = config(&listen, &format!("unix:{}", upstream.display()), "http", "");
    let inner = start("nginx-inner", &inner, second, dir).await?;
    let verify = format!(
        "proxy_ssl_protocols TLSv1.3; proxy_ssl_verify on; proxy_ssl_trusted_certificate {certificate}; \
         proxy_ssl_name bench.localhost; proxy_ssl_server_name on; proxy_ssl_session_reuse on;"
    );
    let outer = config(&format!("listen {first};"), &second.to_string(), "https", &verify);
    let outer = start("nginx-outer", &outer, first, dir).await?;
    Ok(([outer, inner], first))
}

fn config(listen: &str, upstream: &str, scheme: &str, more: &str) -> String {
    // Its workers open the upstream's socket, which belongs to whoever runs the benchmark.
    let user = if std::fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0) { "user root;" } else { "" };
    format!(
        "{user} daemon off; worker_processes 2; pid nginx.pid; error_log stderr warn; worker_rlimit_nofile 8192;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    keepalive_requests 1000000000;
    map $http_upgrade $connection_to_app {{ default upgrade; '' ''; }}
    upstream app {{ server {upstream}; keepalive 256; keepalive_requests 1000000000; }}
    server {{
        {listen}
        location / {{
            proxy_pass {scheme}://app;
            proxy_http_version 1.1;
            proxy_set_header Host $http_host;
            proxy_set_header X-Forwarded-For $remote_addr;
            proxy_set_header X-Forwarded-Proto $scheme;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection $connection_to_app;
            proxy_buffer_size 32k; proxy_buffers 32 32k; proxy_busy_buffers_size 256k; proxy_max_temp_file_size 0;
            {more}
        }}
    }}
}}
"
    )
}

async fn start(name: &str, config: &str, address: SocketAddr, dir: &Path) -> anyhow::Result<Server> {
    let prefix = dir.join(name);
    std::fs::create_dir_all(&prefix)?;
    let path = prefix.join("nginx.conf");
    std::fs::write(&path, config)?;
    let mut command = Command::new("nginx");
    command.arg("-e").arg("stderr").arg("-p").arg(&prefix).arg("-c").arg(&path);
    let mut server = Server::start(name, command, dir)?;
    server.wait(Answers::Tcp(address)).await?;
    Ok(server)
}

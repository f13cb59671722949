//! A Jupyter kernel in a session, reached through the portal's proxy over HTTP and WebSocket, as JupyterLab does.
//!
//! Messages follow <https://jupyter-client.readthedocs.io/en/stable/messaging.html>; the default WebSocket encoding is JSON text.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use futures_util::{SinkExt as _, StreamExt as _};
use reqwest::header::AUTHORIZATION;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use crate::portal::Person;

/// How long a cell may take; the machine may be busy.
const CELL: Duration = Duration::from_mins(3);

/// A kernel that runs, and how to reach it.
pub struct Kernel {
    /// Kernel id.
    pub id: String,
    host: String,
    token: String,
}

/// One open channel to a kernel.
pub struct Channel {
    socket: WebSocketStream<TcpStream>,
    client_session: String,
}

impl Kernel {
    /// Starts a kernel in a running session.
    pub async fn start(person: &Person, session: &Value) -> anyhow::Result<Self> {
        let (client, origin, host) = person.app(session)?;
        let response = client
            .post(format!("{origin}/api/kernels"))
            // As Jupyter's own clients send it.
            .header(AUTHORIZATION, format!("token {}", person.token))
            .json(&json!({"name": "python3"}))
            .send()
            .await?;
        let status = response.status();
        let body: Value = response.json().await?;
        ensure!(status.is_success(), "start kernel: {status} {body}");
        Ok(Self { id: body["id"].as_str().context("kernel id")?.to_owned(), host, token: person.token.clone() })
    }

    /// Opens the kernel's channels.
    pub async fn connect(&self) -> anyhow::Result<Channel> {
        let client_session = uuid::Uuid::now_v7().simple().to_string();
        let address = format!("ws://{}/api/kernels/{}/channels?session_id={client_session}", self.host, self.id);
        let mut request = address.into_client_request()?;
        request.headers_mut().insert(AUTHORIZATION, format!("Bearer {}", self.token).parse()?);
        let port = self.host.rsplit_once(':').map_or("80", |(_, port)| port);
        let stream = TcpStream::connect(format!("127.0.0.1:{port}")).await?;
        let (socket, _) = tokio_tungstenite::client_async(request, stream).await?;
        Ok(Channel { socket, client_session })
    }

    /// Runs one cell on a channel of its own and gives what it printed.
    pub async fn run(&self, code: &str) -> anyhow::Result<String> {
        let mut channel = self.connect().await?;
        let id = channel.send(code).await?;
        channel.output(&id, CELL).await
    }
}

impl Channel {
    /// Sends a cell; gives the message's id.
    pub async fn send(&mut self, code: &str) -> anyhow::Result<String> {
        let id = uuid::Uuid::now_v7().simple().to_string();
        let message = json!({
            "header": {"msg_id": id, "username": "", "session": self.client_session, "msg_type": "execute_request", "version": "5.3", "date": ""},
            "parent_header": {}, "metadata": {}, "channel": "shell", "buffers": [],
            "content": {"code": code, "silent": false, "store_history": true, "user_expressions": {}, "allow_stdin": false, "stop_on_error": true},
        });
        self.socket.send(Message::text(message.to_string())).await?;
        Ok(id)
    }

    /// Reads until the cell with this id is done; gives what it printed.
    pub async fn output(&mut self, id: &str, within: Duration) -> anyhow::Result<String> {
        tokio::time::timeout(within, async {
            let (mut text, mut idle, mut replied) = (String::new(), false, false);
            while !(idle && replied) {
                let message = self.socket.next().await.context("the kernel's socket closed")??;
                let Message::Text(message) = message else { continue };
                let message: Value = serde_json::from_str(&message)?;
                if message["parent_header"]["msg_id"] != id {
                    continue;
                }
                match message["header"]["msg_type"].as_str() {
                    Some("stream") => text.push_str(message["content"]["text"].as_str().unwrap_or_default()),
                    Some("status") => idle |= message["content"]["execution_state"] == "idle",
                    Some("error") => bail!("the cell failed: {}", message["content"]),
                    Some("execute_reply") => replied = true,
                    _ => {}
                }
            }
            Ok(text)
        })
        .await
        .context("the cell did not finish")?
    }
}

//! A Zabbix of ours for tests: a trapper that can be away, and an API that counts who asks.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use eirene_zabbix::{read_packet, write_packet};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::lock;
use crate::config::Config;
use crate::testing::{self, TestApp};

/// A Zabbix.
#[derive(Clone, Default)]
pub struct FakeZabbix {
    pub values: Arc<Mutex<Vec<Value>>>,
    /// Whether it knows the items.
    pub knows: Arc<AtomicBool>,
    /// Requests to the API.
    pub asked: Arc<AtomicU64>,
    /// More problems of the node's own host: their numbers, and how bad they are.
    pub more: Arc<Mutex<Vec<(u64, u8)>>>,
    /// Whether the API answers.
    answers: Arc<AtomicBool>,
}

impl FakeZabbix {
    /// Whether the API answers from now on.
    pub fn answers(&self, answers: bool) {
        self.answers.store(answers, Ordering::SeqCst);
    }

    /// How often it was sent a value of this key.
    pub fn values(&self, key: &str) -> usize {
        lock(&self.values).iter().filter(|value| value["key"] == key).count()
    }

    /// Takes values at an address, until the task is ended.
    pub async fn trapper(&self, address: &str) -> (String, tokio::task::JoinHandle<()>) {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let zabbix = self.clone();
        let serving = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let Ok(packet) = read_packet(&mut stream).await else { continue };
                let asked: Value = serde_json::from_slice(&packet).unwrap();
                let values = asked["data"].as_array().unwrap().clone();
                let total = values.len();
                let (taken, not) = if zabbix.knows.load(Ordering::SeqCst) { (total, 0) } else { (0, total) };
                lock(&zabbix.values).extend(values);
                let info = format!("processed: {taken}; failed: {not}; total: {total}; seconds spent: 0.0");
                let answer = json!({"response": "success", "info": info}).to_string();
                write_packet(&mut stream, answer.as_bytes()).await.unwrap();
            }
        });
        (address, serving)
    }

    /// Answers the API's questions.
    async fn api(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let zabbix = self.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(zabbix.clone().answer(stream));
            }
        });
        format!("http://{address}/api_jsonrpc.php")
    }

    async fn answer(self, mut stream: TcpStream) {
        let mut bytes = Vec::new();
        let body: Value = loop {
            if stream.read_buf(&mut bytes).await.unwrap_or_default() == 0 {
                return;
            }
            let text = String::from_utf8_lossy(&bytes);
            if let Some((_, body)) = text.split_once("\r\n\r\n")
                && let Ok(body) = serde_json::from_str(body)
            {
                break body;
            }
        };
        self.asked.fetch_add(1, Ordering::SeqCst);
        let problem = |event: &str, severity: &str, name: &str| {
            json!({
                "eventid": event, "clock": "1700000000", "name": name, "severity": severity, "acknowledged": "0", "suppressed": "0",
            })
        };
        let result = match body["method"].as_str().unwrap() {
            "apiinfo.version" => json!("7.0.10"),
            "host.get" if body["params"]["filter"]["host"] == json!(["n-c1"]) => json!([{"hostid": "1"}]),
            "host.get" if body["params"]["filter"]["host"] == json!(["eirene"]) => json!([{"hostid": "2"}]),
            "host.get" => json!([]),
            "problem.get" if body["params"]["hostids"] == json!(["1"]) => {
                let mut all =
                    vec![(7, problem("7", "2", "<script>alert(1)</script>\u{0}")), (8, problem("8", "1", "restarted"))];
                let more = lock(&self.more).clone();
                all.extend(more.iter().map(|(event, severity)| {
                    (*event, problem(&event.to_string(), &severity.to_string(), "one of many"))
                }));
                // As Zabbix does: the newest, and no more than are asked for.
                all.sort_by_key(|(event, _)| Reverse(*event));
                let limit = body["params"]["limit"].as_u64().unwrap();
                all.into_iter().take(limit as usize).map(|(_, problem)| problem).collect()
            }
            "problem.get" => {
                let node = body["params"]["tags"][0]["value"].as_str().unwrap();
                json!([problem("9", "4", &format!("Eirene: {node} takes no jobs"))])
            }
            "item.get" => {
                json!([{"itemid": "5", "key_": "system.cpu.util", "name": "CPU", "value_type": "0", "units": "%"}])
            }
            "history.get" => json!([{"clock": body["params"]["time_from"].to_string(), "value": "12.5"}]),
            other => panic!("nobody asks for {other}"),
        };
        let text = json!({"jsonrpc": "2.0", "result": result, "id": 1}).to_string();
        let status = if self.answers.load(Ordering::SeqCst) { "200 OK" } else { "502 Bad Gateway" };
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}", text.len());
        let _ = stream.write_all(answer.as_bytes()).await;
    }
}

/// An application with this in its configuration.
pub async fn with_zabbix(section: &str) -> TestApp {
    let mut test = TestApp::new().await;
    reconfigure(&mut test, section);
    test
}

fn reconfigure(test: &mut TestApp, section: &str) {
    let mut config = (*test.app.config).clone();
    let text = format!(
        "[server]\nportal_url = \"https://a.b\"\napps_domain = \"c.d\"\n[tunnel]\nadvertise = \"a:1\"\n[zabbix]\n{section}\n"
    );
    config.zabbix = Config::from_text(&text).unwrap().zabbix;
    test.rebuild(config);
    test.app.cluster.publish(testing::snapshot(vec![]));
}

/// An application that reads a Zabbix of ours.
pub async fn reads(test: &mut TestApp) -> FakeZabbix {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let zabbix = FakeZabbix::default();
    zabbix.answers(true);
    let token = test.directory.path().join("token");
    std::fs::write(&token, "a-token").unwrap();
    let url = zabbix.api().await;
    reconfigure(
        test,
        &format!("api_url = \"{url}\"\napi_token_file = \"{}\"\nnode_host = \"n-{{node}}\"", token.display()),
    );
    zabbix
}

//! The reader against an API of ours: a real listener that speaks as much HTTP as it needs.

#![expect(clippy::unwrap_used, reason = "helpers of tests panic like tests")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use eirene_zabbix::{Api, ApiError, Limits, Severity};
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const TOKEN: &str = "0424bd59b807674191e7d77572075f33";

/// What was asked: the head, and the body.
type Asked = Arc<Mutex<Vec<(String, Value)>>>;

/// Reads one request.
async fn request(stream: &mut TcpStream) -> Option<(String, Value)> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
            if bytes.len() >= end + 4 + length.trim().parse::<usize>().unwrap() {
                return Some((head, serde_json::from_slice(&bytes[end + 4..]).unwrap()));
            }
        }
        if stream.read_buf(&mut bytes).await.unwrap() == 0 {
            return None;
        }
    }
}

/// An API that says this about each method, with the status 200.
async fn serve(says: impl Fn(&str) -> String + Send + 'static) -> (String, Asked) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Asked::default();
    let kept = Arc::clone(&asked);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let Some((head, body)) = request(&mut stream).await else { continue };
            let text = says(body["method"].as_str().unwrap());
            kept.lock().unwrap().push((head, body));
            let answer =
                format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}", text.len());
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (format!("http://{address}/api_jsonrpc.php"), asked)
}

fn result(value: &Value) -> String {
    json!({"jsonrpc": "2.0", "result": value, "id": 1}).to_string()
}

fn api_with(url: &str, limits: Limits) -> Api {
    let _ = rustls::crypto::ring::default_provider().install_default();
    Api::new(url, SecretString::from(TOKEN), None, limits).unwrap()
}

fn api(url: &str) -> Api {
    api_with(url, Limits::default())
}

/// A Zabbix of this version with one host, problem and item.
fn zabbix(version: &'static str) -> impl Fn(&str) -> String + Send + 'static {
    move |method| {
        result(&match method {
            "apiinfo.version" => json!(version),
            "host.get" => json!([{"hostid": "10084"}]),
            "problem.get" => json!([{
                "eventid": "18446744073709551615", "clock": "1700000000", "name": "<b>fan</b>", "severity": "4",
                "acknowledged": "1", "suppressed": "0", "more": [],
            }]),
            "item.get" => json!([
                {"itemid": "7", "key_": "load", "name": "Load", "value_type": "0", "units": ""},
                {"itemid": "8", "key_": "users", "name": "Users", "value_type": "3", "units": ""},
                {"itemid": "9", "key_": "os", "name": "System", "value_type": "4", "units": ""},
                {"itemid": "10", "key_": "other", "name": "Not asked for", "value_type": "0", "units": ""},
                {"itemid": "11", "key_": "load", "name": "Again", "value_type": "0", "units": ""},
            ]),
            "history.get" => json!([
                {"clock": "30", "value": "2.5"}, {"clock": "20", "value": "nan"}, {"clock": "10", "value": "1e1"},
            ]),
            other => panic!("nobody asks for {other}"),
        })
    }
}

#[tokio::test]
async fn the_token_goes_where_each_version_looks_for_it_and_never_into_the_address() {
    for (version, by_header) in [("6.0.45", false), ("6.4.0", true), ("7.0.10", true)] {
        let (url, asked) = serve(zabbix(version)).await;
        let api = api(&url);
        assert!(api.host("c1").await.unwrap().is_some());
        assert!(api.host("c1").await.unwrap().is_some());
        let asked = asked.lock().unwrap();
        let methods: Vec<&str> = asked.iter().map(|(_, body)| body["method"].as_str().unwrap()).collect();
        assert_eq!(methods, ["apiinfo.version", "host.get", "host.get"], "the version is asked for once");
        let header = format!("authorization: bearer {TOKEN}");
        for (place, (head, body)) in asked.iter().enumerate() {
            let tells = place > 0;
            assert_eq!(head.contains(&header), tells && by_header, "{version}: {head}");
            assert_eq!(body["auth"] == TOKEN, tells && !by_header, "{version}: {body}");
            assert!(head.starts_with("post /api_jsonrpc.php http"), "{head}");
        }
    }
}

#[tokio::test]
async fn problems_and_history_are_read() {
    let (url, asked) = serve(zabbix("7.0.10")).await;
    let api = api(&url);
    let host = api.host("c1").await.unwrap().unwrap();
    let problems = api.problems(host, Some(("node", "c1")), 5).await.unwrap();
    let [problem] = &problems[..] else { panic!("{problems:?}") };
    assert_eq!((problem.event, problem.clock, problem.name.as_str()), (u64::MAX, 1_700_000_000, "<b>fan</b>"));
    assert_eq!((problem.severity, problem.acknowledged, problem.suppressed), (Severity::High, true, false));
    let items = api.items(host, &["users".into(), "load".into(), "os".into()]).await.unwrap();
    let keys: Vec<&str> = items.iter().map(|item| item.key.as_str()).collect();
    assert_eq!(keys, ["users", "load"], "what was asked for, in that order, once, and numbers alone");
    let points = api.history(&items[0], 5, 100).await.unwrap();
    let points: Vec<(i64, f64)> = points.iter().map(|point| (point.clock, point.value)).collect();
    assert_eq!(points, [(10, 10.0), (30, 2.5)]);
    let asked = asked.lock().unwrap();
    let params = |method: &str| asked.iter().find(|(_, body)| body["method"] == method).unwrap().1["params"].clone();
    assert_eq!(params("problem.get")["tags"], json!([{"tag": "node", "value": "c1", "operator": 1}]));
    assert_eq!((&params("history.get")["history"], &params("history.get")["itemids"]), (&json!(3), &json!(["8"])));
}

#[tokio::test]
async fn trouble_has_a_name_and_the_token_is_in_none() {
    let refused = |method: &str| {
        match method {
        "apiinfo.version" => result(&json!("7.0.0")),
        _ => json!({"jsonrpc": "2.0", "error": {"code": -32602, "message": "Invalid params.", "data": "Not\nauthorized."}, "id": 1})
            .to_string(),
    }
    };
    let (url, _) = serve(refused).await;
    let error = api(&url).host("c1").await.unwrap_err();
    assert_eq!(error.to_string(), "the API refuses `host.get`: Invalid params. Not authorized.");

    for text in ["", "<html>", "{}", r#"{"result": "7"}"#, r#"{"result": [7]}"#] {
        let (url, _) = serve(move |_| text.to_owned()).await;
        let error = api(&url).host("c1").await.unwrap_err();
        assert!(matches!(error, ApiError::Malformed("apiinfo.version")), "{text}: {error}");
    }

    let (url, _) = serve(|_| result(&json!("x".repeat(5000)))).await;
    let error = api_with(&url, Limits { most_bytes: 4000, ..Limits::default() }).version().await.unwrap_err();
    assert!(matches!(error, ApiError::TooLong(4000)), "{error}");

    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let silent = format!("http://user:{TOKEN}@{}/", listener.local_addr().unwrap());
    let limits = Limits { wait: Duration::from_millis(200), ..Limits::default() };
    let error = api_with(&silent, limits).host("c1").await.unwrap_err();
    assert!(matches!(&error, ApiError::Unreachable(why) if !why.contains(TOKEN)), "{error}");
    drop(listener);

    for (url, token) in [("ftp://z/", TOKEN), ("z", TOKEN), ("http://z/", ""), ("http://z/", "two words")] {
        let error = Api::new(url, SecretString::from(token), None, Limits::default()).err().unwrap();
        assert!(matches!(error, ApiError::Setup(_)), "{url}");
    }
    let error = Api::new("https://z/", SecretString::from(TOKEN), Some(b"none"), Limits::default()).err().unwrap();
    assert!(error.to_string().contains("CA"), "{error}");
}

#[tokio::test]
async fn hostile_numbers_are_an_error_and_too_many_rows_are_cut() {
    let many = |method: &str| {
        result(&match method {
            "apiinfo.version" => json!("7.0.0"),
            "host.get" => json!([{"hostid": 1}]),
            _ => json!(vec![json!({"clock": "1", "value": "1"}); 50]),
        })
    };
    let (url, _) = serve(many).await;
    let api_of_many = api(&url);
    let item = eirene_zabbix::Item { id: 1, key: "k".into(), name: "k".into(), units: String::new(), is_whole: false };
    assert_eq!(api_of_many.history(&item, 0, 7).await.unwrap().len(), 7);
    for id in [json!("1; drop"), json!(-1), json!("-1"), json!(1.5), json!(null)] {
        let (url, _) = serve(move |method| match method {
            "apiinfo.version" => result(&json!("7.0.0")),
            _ => result(&json!([{"hostid": id}])),
        })
        .await;
        assert!(matches!(api(&url).host("c1").await, Err(ApiError::Malformed("host.get"))));
    }
}

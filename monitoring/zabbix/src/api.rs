//! Zabbix' JSON-RPC API (`api_jsonrpc.php`), as far as reading needs it: one request, one bounded answer, an end to waiting.
//!
//! The token goes into the header `Authorization`. Before 6.4 the API looks for it in the request alone, so there it goes into `auth`; which of
//! both is found out once, by `apiinfo.version`, which needs no token.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use reqwest::{Certificate, Client, Url, redirect};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::packet::short;

/// What an answer may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// From the request to the end of its answer.
    pub wait: Duration,
    /// Longest answer, bytes.
    pub most_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { wait: Duration::from_secs(5), most_bytes: 1024 * 1024 }
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// Address, token or CA cannot be used.
    #[error("the API cannot be asked: {0}")]
    Setup(&'static str),
    /// Nobody answers, or not in time.
    #[error("the API does not answer: {0}")]
    Unreachable(String),
    /// What answers is not the API.
    #[error("the API answers with status {0}")]
    Status(u16),
    /// The answer is longer than it may be.
    #[error("the answer has more than {0} bytes")]
    TooLong(usize),
    /// The answer is not understood.
    #[error("the answer to `{0}` is not understood")]
    Malformed(&'static str),
    /// The API refuses, and says why.
    #[error("the API refuses `{method}`: {text}")]
    Refused {
        /// Method.
        method: &'static str,
        /// The API's own words.
        text: String,
    },
}

/// Version of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ApiVersion {
    /// First number.
    pub major: u16,
    /// Second number.
    pub minor: u16,
}

impl ApiVersion {
    /// From here on the token goes into the header.
    const BY_HEADER: Self = Self { major: 6, minor: 4 };
}

impl fmt::Display for ApiVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for ApiVersion {
    type Err = ();

    /// `7.0.10`, `7.0.0rc1`.
    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.split('.').map(|part| part.parse().map_err(|_| ()));
        let (Some(major), Some(minor)) = (parts.next(), parts.next()) else { return Err(()) };
        Ok(Self { major: major?, minor: minor? })
    }
}

/// The API of one Zabbix.
pub struct Api {
    client: Client,
    url: Url,
    token: SecretString,
    limits: Limits,
    version: OnceCell<ApiVersion>,
}

#[derive(Deserialize)]
struct Said {
    result: Option<Value>,
    error: Option<SaidError>,
}

#[derive(Deserialize)]
struct SaidError {
    #[serde(default)]
    message: String,
    #[serde(default)]
    data: Value,
}

impl Api {
    /// The API at `url`; `ca` is a PEM text of certificates that are trusted besides the system's.
    ///
    /// # Errors
    /// [`ApiError::Setup`]. rustls' provider has to be installed before.
    pub fn new(url: &str, token: SecretString, ca: Option<&[u8]>, limits: Limits) -> Result<Self, ApiError> {
        // Not the error of whoever parses it: that would repeat an address that may hold a secret.
        let url = Url::parse(url).map_err(|_| ApiError::Setup("its address is not understood"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(ApiError::Setup("its address does not begin with `http://` or `https://`"));
        }
        let text = token.expose_secret();
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ApiError::Setup("the token is not one printable word"));
        }
        let mut client = Client::builder().redirect(redirect::Policy::none()).timeout(limits.wait);
        if let Some(ca) = ca {
            let certificates = Certificate::from_pem_bundle(ca).unwrap_or_default();
            if certificates.is_empty() {
                return Err(ApiError::Setup("the CA's file holds no certificate"));
            }
            client = client.tls_certs_merge(certificates);
        }
        let client = client.build().map_err(|_| ApiError::Setup("TLS cannot be set up"))?;
        Ok(Self { client, url, token, limits, version: OnceCell::new() })
    }

    /// Which version answers; asked once.
    ///
    /// # Errors
    /// [`ApiError`]; then it is asked again the next time.
    pub async fn version(&self) -> Result<ApiVersion, ApiError> {
        const METHOD: &str = "apiinfo.version";
        let ask = async || {
            let text: String = self.ask(METHOD, &json!([]), None).await?;
            text.parse().map_err(|()| ApiError::Malformed(METHOD))
        };
        self.version.get_or_try_init(ask).await.copied()
    }

    /// Asks a method that only reads.
    pub(crate) async fn call<T: DeserializeOwned>(&self, method: &'static str, params: &Value) -> Result<T, ApiError> {
        let version = self.version().await?;
        self.ask(method, params, Some(version)).await
    }

    /// With the token where a version is said, in the way it has there.
    async fn ask<T: DeserializeOwned>(
        &self,
        method: &'static str,
        params: &Value,
        by: Option<ApiVersion>,
    ) -> Result<T, ApiError> {
        let mut body = json!({"jsonrpc": "2.0", "method": method, "params": params, "id": 1});
        let mut request = self.client.post(self.url.clone()).header("content-type", "application/json-rpc");
        match by {
            Some(version) if version >= ApiVersion::BY_HEADER => {
                request = request.bearer_auth(self.token.expose_secret());
            }
            Some(_) => body["auth"] = self.token.expose_secret().into(),
            None => {}
        }
        let gone = |error: reqwest::Error| ApiError::Unreachable(cause(error));
        let mut answer = request.body(body.to_string()).send().await.map_err(gone)?;
        if !answer.status().is_success() {
            return Err(ApiError::Status(answer.status().as_u16()));
        }
        let mut text = Vec::new();
        while let Some(part) = answer.chunk().await.map_err(gone)? {
            if text.len().saturating_add(part.len()) > self.limits.most_bytes {
                return Err(ApiError::TooLong(self.limits.most_bytes));
            }
            text.extend_from_slice(&part);
        }
        let said: Said = serde_json::from_slice(&text).map_err(|_| ApiError::Malformed(method))?;
        match said {
            Said { error: Some(SaidError { message, data }), .. } => {
                let data = data.as_str().map(short).unwrap_or_default();
                Err(ApiError::Refused { method, text: format!("{} {data}", short(&message)).trim().to_owned() })
            }
            Said { result: Some(result), .. } => {
                serde_json::from_value(result).map_err(|_| ApiError::Malformed(method))
            }
            Said { .. } => Err(ApiError::Malformed(method)),
        }
    }
}

/// The last cause says what it was; the address, which may hold a secret, is in none of them.
fn cause(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut last: &dyn std::error::Error = &error;
    while let Some(source) = last.source() {
        last = source;
    }
    short(&last.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_have_an_order() {
        let version = |text: &str| text.parse::<ApiVersion>();
        assert!(version("6.0.45").unwrap() < ApiVersion::BY_HEADER);
        assert!(version("7.0.0rc1").unwrap() >= ApiVersion::BY_HEADER);
        assert_eq!(version("7.0.10").unwrap().to_string(), "7.0");
        for wrong in ["", "7", "7.x", "-1.0", "99999.1"] {
            assert!(version(wrong).is_err(), "{wrong}");
        }
    }
}

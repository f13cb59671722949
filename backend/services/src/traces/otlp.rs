//! Spans in OpenTelemetry's own form: OTLP 1 as JSON (opentelemetry.io/docs/specs/otlp, "JSON Protobuf Encoding"). Ids are hexadecimal, numbers of 64
//! bits are texts.

use data_encoding::HEXLOWER;
use serde_json::{Value as Json, json};

use super::spans::{Service, Span, Value};

/// `SPAN_KIND_INTERNAL` and `SPAN_KIND_SERVER`.
const KINDS: [u8; 2] = [1, 2];
/// `STATUS_CODE_ERROR`.
const FAILED: u8 = 2;

/// What is sent of these.
pub(super) fn body(spans: &[Span]) -> Json {
    let of = |service: Service, name: &str| {
        let own: Vec<Json> = spans.iter().filter(|span| span.service == service).map(span).collect();
        let resource = [attribute("service.name", &Value::Text(name.to_owned()))];
        (!own.is_empty()).then(|| {
            json!({
                "resource": {"attributes": resource},
                "scopeSpans": [{"scope": {"name": "eirene", "version": env!("CARGO_PKG_VERSION")}, "spans": own}],
            })
        })
    };
    let all = [of(Service::Portal, "eirened"), of(Service::Agent, "eirene-agent")];
    json!({"resourceSpans": all.into_iter().flatten().collect::<Vec<_>>()})
}

fn span(span: &Span) -> Json {
    let nanoseconds = |at: jiff::Timestamp| at.as_nanosecond().max(0).to_string();
    let attributes: Vec<Json> = span.attributes.iter().map(|(name, value)| attribute(name, value)).collect();
    let mut json = json!({
        "traceId": HEXLOWER.encode(&span.trace),
        "spanId": HEXLOWER.encode(&span.id),
        "name": span.name,
        "kind": KINDS[usize::from(span.is_asked)],
        "startTimeUnixNano": nanoseconds(span.begins),
        "endTimeUnixNano": nanoseconds(span.ends),
        "attributes": attributes,
    });
    if let Some(parent) = &span.parent {
        json["parentSpanId"] = HEXLOWER.encode(parent).into();
    }
    if span.failed {
        json["status"] = json!({"code": FAILED});
    }
    json
}

fn attribute(name: &str, value: &Value) -> Json {
    let value = match value {
        Value::Text(text) => json!({"stringValue": text}),
        Value::Whole(number) => json!({"intValue": number.to_string()}),
    };
    json!({"key": name, "value": value})
}

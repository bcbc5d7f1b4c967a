//! Traces of requests and rounds, sent to a collector by OTLP over plain HTTP. Built with the feature `otel` only.
//!
//! A span has the names that the metrics have: method, route as a template, status. No bodies, no queries, no
//! people and no secrets.

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracerProvider, Tracer};
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::registry::LookupSpan;

/// Sends what was traced when it is dropped, and no more after that.
pub struct Traces(SdkTracerProvider);

impl Drop for Traces {
    fn drop(&mut self) {
        if let Err(error) = self.0.shutdown() {
            let error = crate::plain::one_line(&error.to_string());
            tracing::warn!(error, "the last traces could not be sent");
        }
    }
}

/// Where traces go: the address of a collector, such as `http://127.0.0.1:4318`. `/v1/traces` is added.
///
/// # Errors
/// If that is no plain HTTP address.
pub fn traces<S>(url: &str) -> Result<(OpenTelemetryLayer<S, Tracer>, Traces), String>
where
    S: tracing::Subscriber + for<'span> LookupSpan<'span>,
{
    if !url.starts_with("http://") || url.len() == "http://".len() {
        return Err(format!(
            "--otlp: '{}' is no address such as http://127.0.0.1:4318; for TLS, run a collector on this machine",
            crate::plain::one_line(url)
        ));
    }
    let exporter = SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(format!("{}/v1/traces", url.trim_end_matches('/')))
        .build()
        .map_err(|error| format!("--otlp: {error}"))?;
    let resource = Resource::builder().with_service_name("bursar").build();
    let provider =
        SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build();
    let tracer = provider.tracer("bursar");
    let layer =
        tracing_opentelemetry::layer().with_tracer(tracer).with_location(false).with_threads(false);
    Ok((layer, Traces(provider)))
}

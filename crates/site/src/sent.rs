//! What was sent, told from anything else that could be: the same submission sent again is known by it, whatever
//! this site's defaults are by then.

use crate::declare::WorkloadDoc;
use crate::plan::hash_of;
use serde_json::json;

/// SHA-256 of a declaration as its sender wrote it, however it was written. What was left out is left out.
///
/// Fields may be added at the end of time only if they change nothing where they are not given.
pub(crate) fn digest(doc: &WorkloadDoc, hold: bool) -> String {
    let array = doc.array.as_ref().map(|array| json!([array.indices, array.at_once]));
    let mut fields = json!({
        "name": doc.name,
        "gpus": doc.gpus,
        "min_runtime": doc.min_runtime.map(|span| span.0),
        "resumable": doc.resumable,
        "budget_owner": doc.budget_owner,
        "command": doc.command,
        "gpu_model": doc.gpu_model,
        "hosts": doc.hosts,
        "gpus_per_host": doc.gpus_per_host,
        "user": doc.user,
        "rank": doc.rank,
        "kind": doc.kind,
        "grace": doc.grace.map(|span| span.0),
        "checkpoint_interval": doc.checkpoint_interval.map(|span| span.0),
        "checkpoint_on_signal": doc.checkpoint_on_signal,
        "max_runtime": doc.max_runtime.map(|span| span.0),
        "cpus": doc.cpus,
        "memory": doc.memory.map(|bytes| bytes.0),
        "env": doc.env,
        "workdir": doc.workdir,
        "labels": doc.labels,
        "after": doc.after,
        "array": array,
        "hold": hold,
    });
    if let Some(fields) = fields.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    hash_of(&fields.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::declare::read_workload;

    #[test]
    fn the_same_is_the_same_however_it_is_written() {
        let of = |text: &str, hold| digest(&read_workload(text).expect(text), hold);
        let first = of(
            "workload: {name: w, gpus: 1, budget_owner: a, command: [x], min_runtime: 1h}",
            false,
        );
        let again = of(
            "workload:\n  min_runtime: 60m\n  budget_owner: a\n  gpus: 1\n  name: w\n  command: [x]\n",
            false,
        );
        assert_eq!(first, again);
        for (text, hold) in [
            ("workload: {name: w, gpus: 1, budget_owner: a, command: [x], min_runtime: 1h}", true),
            ("workload: {name: w, gpus: 1, budget_owner: a, command: [x]}", false),
            ("workload: {name: w, gpus: 1, budget_owner: a, command: [y], min_runtime: 1h}", false),
        ] {
            assert_ne!(of(text, hold), first, "{text}");
        }
    }
}

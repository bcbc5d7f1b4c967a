//! Which GPUs this machine has.

use super::{GpuSource, LocalOptions};

/// What virtual GPUs are called.
const VIRTUAL: &str = "virtual";

/// The GPUs of this machine.
#[derive(Debug)]
pub(crate) struct Gpus {
    /// Of each host, once they are spread over several.
    pub(crate) count: u32,
    pub(crate) model: String,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Virtual,
    #[cfg(feature = "nvml")]
    Driver(Box<nvml_wrapper::Nvml>),
}

impl Gpus {
    /// Looks for them, or makes some up. Adds what an operator should know to `notes`.
    pub(crate) fn find(options: &LocalOptions, notes: &mut Vec<String>) -> Self {
        let found = match options.gpus {
            GpuSource::Virtual { count } => Self::virtual_ones(count),
            GpuSource::Detected { virtual_if_none } => {
                detect(notes).unwrap_or_else(|| Self::virtual_ones(virtual_if_none))
            }
        };
        let model = options.gpu_model.clone().unwrap_or(found.model);
        Self { model, ..found }
    }

    fn virtual_ones(count: u32) -> Self {
        Self { count, model: VIRTUAL.to_owned(), source: Source::Virtual }
    }

    /// Whether they were made up.
    pub(crate) fn are_virtual(&self) -> bool {
        match self.source {
            Source::Virtual => true,
            #[cfg(feature = "nvml")]
            Source::Driver(_) => false,
        }
    }

    /// Whether all that were found are still there.
    pub(crate) fn are_healthy(&self) -> bool {
        match &self.source {
            Source::Virtual => true,
            #[cfg(feature = "nvml")]
            Source::Driver(driver) => driver.device_count().is_ok_and(|count| {
                count >= self.count
                    && (0..self.count).all(|index| {
                        driver.device_by_index(index).and_then(|gpu| gpu.memory_info()).is_ok()
                    })
            }),
        }
    }
}

#[cfg(feature = "nvml")]
fn detect(notes: &mut Vec<String>) -> Option<Gpus> {
    let driver = match nvml_wrapper::Nvml::init() {
        Ok(driver) => driver,
        Err(error) => {
            notes.push(format!("no GPUs are seen through NVIDIA's driver: {error}"));
            return None;
        }
    };
    let names = driver.device_count().and_then(|count| {
        (0..count).map(|index| driver.device_by_index(index).and_then(|gpu| gpu.name())).collect()
    });
    let names: Vec<String> = match names {
        Ok(names) => names,
        Err(error) => {
            notes.push(format!("NVIDIA's driver does not tell its GPUs: {error}"));
            return None;
        }
    };
    let count = u32::try_from(names.len()).ok()?;
    let model = short_model(names.first()?);
    if let Some(other) = names.iter().map(|name| short_model(name)).find(|other| *other != model) {
        notes.push(format!("GPUs of several models are all taken for {model}, one is {other}"));
    }
    Some(Gpus { count, model, source: Source::Driver(Box::new(driver)) })
}

#[cfg(not(feature = "nvml"))]
fn detect(notes: &mut Vec<String>) -> Option<Gpus> {
    notes.push("no GPUs are looked for: built without nvml".to_owned());
    None
}

/// A model as people call it: `NVIDIA H100 80GB HBM3` is `h100`.
#[cfg(any(test, feature = "nvml"))]
fn short_model(name: &str) -> String {
    let name = name.to_ascii_lowercase();
    let brands = ["nvidia", "tesla", "quadro", "geforce", "graphics", "device"];
    let mut words =
        name.split([' ', '-']).filter(|word| !word.is_empty() && !brands.contains(word));
    match (words.next(), words.next()) {
        (Some(series @ ("rtx" | "gtx" | "titan")), Some(model)) => format!("{series}-{model}"),
        (Some(model), _) => model.to_owned(),
        (None, _) => "gpu".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_called_as_people_call_them() {
        for (name, short) in [
            ("NVIDIA H100 80GB HBM3", "h100"),
            ("NVIDIA A100-SXM4-40GB", "a100"),
            ("Tesla V100-SXM2-16GB", "v100"),
            ("NVIDIA GeForce RTX 4090", "rtx-4090"),
            ("NVIDIA RTX A6000", "rtx-a6000"),
            ("NVIDIA L40S", "l40s"),
            ("NVIDIA GH200 480GB", "gh200"),
            ("NVIDIA", "gpu"),
        ] {
            assert_eq!(short_model(name), short);
        }
    }

    #[test]
    fn virtual_gpus_are_what_was_asked_for() {
        let mut options = LocalOptions::new(Vec::new());
        options.gpus = GpuSource::Virtual { count: 8 };
        let gpus = Gpus::find(&options, &mut Vec::new());
        assert_eq!((gpus.count, &*gpus.model, gpus.are_healthy()), (8, "virtual", true));
        options.gpu_model = Some("h100".to_owned());
        assert_eq!(Gpus::find(&options, &mut Vec::new()).model, "h100");
    }
}

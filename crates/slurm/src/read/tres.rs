//! GPUs as Slurm counts them.

use super::table::present;

/// How many GPUs, and their model where one is named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gpus {
    /// How many.
    pub count: u32,
    /// Their model, in small letters. None if none is named, or several are.
    pub model: Option<String>,
}

/// The GPUs of a TRES string: `cpu=1,node=1,gres/gpu=3,gres/gpu:h100=3`.
pub fn gpus_of_tres(text: &str) -> Gpus {
    let (mut total, mut by_model) = (None, Vec::new());
    for item in text.split(',') {
        let Some((name, count)) = item.trim().split_once('=') else { continue };
        let Ok(count) = count.parse::<u32>() else { continue };
        match name.strip_prefix("gres/gpu") {
            Some("") => total = Some(count),
            Some(rest) => {
                if let Some(model) = rest.strip_prefix(':').filter(|model| !model.is_empty()) {
                    by_model.push((model.to_ascii_lowercase(), count));
                }
            }
            None => {}
        }
    }
    of_models(total, by_model)
}

/// The GPUs of a GRES string: `gpu:h100:8(S:0-1)`, `gpu:8,shard:16`, `gres:gpu:h100:2`, `gpu` for one.
pub fn gpus_of_gres(text: &str) -> Gpus {
    let (mut total, mut by_model) = (None::<u32>, Vec::new());
    let Some(text) = present(text) else { return Gpus::default() };
    for item in outside_brackets(text).split(',') {
        let item = item.trim();
        let item = item.strip_prefix("gres:").or(item.strip_prefix("gres/")).unwrap_or(item);
        let parts: Vec<&str> = item.split([':', '=']).collect();
        let (model, count) = match parts[..] {
            ["gpu"] => (None, "1"),
            ["gpu", count] if count.starts_with(|one: char| one.is_ascii_digit()) => (None, count),
            ["gpu", model] => (Some(model), "1"),
            ["gpu", model, count] => (Some(model), count),
            _ => continue,
        };
        let Ok(count) = count.parse::<u32>() else { continue };
        match model {
            None => total = Some(total.unwrap_or(0).saturating_add(count)),
            Some(model) => by_model.push((model.to_ascii_lowercase(), count)),
        }
    }
    let typed = by_model.iter().fold(0_u32, |sum, (_, count)| sum.saturating_add(*count));
    // A node may have some with a model and some without.
    let total = total.map(|total| total.saturating_add(typed));
    of_models(total, by_model)
}

fn of_models(total: Option<u32>, by_model: Vec<(String, u32)>) -> Gpus {
    let typed = by_model.iter().fold(0_u32, |sum, (_, count)| sum.saturating_add(*count));
    let mut models: Vec<String> =
        by_model.into_iter().filter(|(_, count)| *count > 0).map(|(model, _)| model).collect();
    models.sort();
    models.dedup();
    let model = if models.len() == 1 { models.pop() } else { None };
    Gpus { count: total.unwrap_or(typed), model }
}

/// The text without what stands in round brackets.
fn outside_brackets(text: &str) -> String {
    let mut depth = 0_u32;
    let keep = |letter: &char| {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => return depth == 0,
        }
        false
    };
    text.chars().filter(keep).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn gpus(count: u32, model: &str) -> Gpus {
        Gpus { count, model: (!model.is_empty()).then(|| model.to_owned()) }
    }

    #[test]
    fn gpus_are_counted() {
        assert_eq!(gpus_of_tres("cpu=1,mem=1000M,node=1,billing=1,gres/gpu=3"), gpus(3, ""));
        assert_eq!(gpus_of_tres("gres/gpu:H100=4,gres/gpu=4"), gpus(4, "h100"));
        assert_eq!(gpus_of_tres("gres/gpu:a100=1,gres/gpu:h100=2"), gpus(3, ""));
        assert_eq!(gpus_of_tres("cpu=1,gres/gpumem=80G"), gpus(0, ""));
        assert_eq!(gpus_of_gres("gpu:h100:8(S:0-1)"), gpus(8, "h100"));
        assert_eq!(gpus_of_gres("gpu:8,shard:16"), gpus(8, ""));
        assert_eq!(gpus_of_gres("gres:gpu:h100:2"), gpus(2, "h100"));
        assert_eq!(gpus_of_gres("gres:gpu:2"), gpus(2, ""));
        assert_eq!(gpus_of_gres("gres:gpu"), gpus(1, ""));
        assert_eq!(gpus_of_gres("gpu:a100:4(S:0,1),gpu:h100:4"), gpus(8, ""));
        assert_eq!(gpus_of_gres("(null)"), gpus(0, ""));
        assert_eq!(gpus_of_gres("craynetwork:1"), gpus(0, ""));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".*", odd in "[gpures/:=,()0-9]{0,40}") {
            for text in [&text, &odd] {
                let _ = (gpus_of_tres(text), gpus_of_gres(text));
            }
        }
    }
}

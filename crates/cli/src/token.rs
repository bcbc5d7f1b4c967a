//! `bursar token`.

use crate::args::TokenVerb;
use crate::client::Client;
use crate::failure::Failure;
use crate::live::{path_word, print, table, when, words};
use crate::shown::say;
use bursar_server::first::KeepSecret;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) fn token(verb: &TokenVerb) -> Result<(), Failure> {
    match verb {
        TokenVerb::List { server } => {
            let answer = Client::new(server)?.get("/v1/tokens", &[])?;
            print(server, &answer, list);
        }
        TokenVerb::Issue { name, user, expires, read_only, out, server } => {
            let mut wanted = json!({ "name": name, "read_only": read_only });
            if let Some(user) = user {
                wanted["user"] = json!(user);
            }
            if let Some(ms) = expires {
                wanted["expires_in_seconds"] = json!(ms.div_ceil(1_000));
            }
            let client = Client::new(server)?;
            let mut answer = client.post("/v1/tokens", None, &wanted.to_string())?;
            let secret = words(&answer["secret"]);
            let Some(file) = out else {
                print(server, &answer, |_| {
                    format!(
                        "token {name}, shown this once; only its hash is kept:\n\n  export BURSAR_TOKEN={secret}\n"
                    )
                });
                return Ok(());
            };
            if let Err(failure) = crate::up::write_secret(file, &secret) {
                // A secret that nobody has is of no use, and its name would be taken.
                client.post(&format!("/v1/tokens/{}/revoke", path_word(name)?), None, "")?;
                return Err(failure);
            }
            if server.json {
                answer["secret"] = Value::Null;
                answer["file"] = json!(file.display().to_string());
                say(&format!("{answer:#}\n"));
            } else {
                say(&format!("token {name} is in {}\n", file.display()));
            }
        }
        TokenVerb::Recover { data, out } => recover(data.data.as_ref(), out.as_deref())?,
        TokenVerb::Revoke { name, server } => {
            let path = format!("/v1/tokens/{}/revoke", path_word(name)?);
            let answer = Client::new(server)?.post(&path, None, "")?;
            print(server, &answer, |_| format!("token {name} is void\n"));
        }
    }
    Ok(())
}

/// The journal of a site that is down gets a token for its owner.
fn recover(data: Option<&PathBuf>, out: Option<&Path>) -> Result<(), Failure> {
    let data = crate::up::data_folder(data)?;
    let kept = Arc::new(Mutex::new(String::new()));
    let (into, file) = (Arc::clone(&kept), out.map(Path::to_owned));
    let keep = KeepSecret::by(move |secret| {
        if let Some(file) = &file {
            return crate::up::write_secret(file, secret).map_err(|failure| failure.to_string());
        }
        secret.clone_into(&mut into.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(())
    });
    let made = bursar_server::first::recover(&data, &keep).map_err(Failure::input)?;
    let told = format!("token {} of {}", made.token, made.owner);
    match out {
        Some(file) => say(&format!("{told} is in {}\n", file.display())),
        None => {
            let secret = kept.lock().unwrap_or_else(PoisonError::into_inner);
            say(&format!(
                "{told}, shown this once; only its hash is kept:\n\n  export BURSAR_TOKEN={secret}\n"
            ));
        }
    }
    Ok(())
}

fn list(answer: &Value) -> String {
    let row = |token: &Value| {
        let state = if token["void"] == true {
            "void".to_owned()
        } else if token["expires_unix_ms"].is_u64() {
            format!("expires {}", when(&token["expires_unix_ms"]))
        } else {
            "good".to_owned()
        };
        let may = if token["read_only"] == true { "read" } else { "read, change" };
        vec![words(&token["token"]), words(&token["user"]), may.to_owned(), state]
    };
    let rows = answer["tokens"].as_array().into_iter().flatten().map(row).collect();
    table(&["token", "user", "may", "state"], rows)
}

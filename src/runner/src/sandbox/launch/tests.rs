use std::{fs, time::Duration};

use super::*;
use crate::sandbox::{cgroup::Cgroup, engine::Status, trial::Trial};

#[tokio::test]
async fn a_container_starts_as_ordered_and_ends_without_a_trace() {
    let trial = Trial::new().await;
    let launched = trial.launch().await.unwrap();
    assert!(launched.notices.is_empty(), "{:?}", launched.notices);
    let found = trial.engine.inspect(&launched.id).await.unwrap();
    println!("{}", serde_json::to_string_pretty(&*found.whole).unwrap());
    assert_eq!((found.status, found.pid), (Status::Running, launched.pid));
    trial.engine.end(&launched.id).await.unwrap();
    assert!(matches!(trial.engine.inspect(&launched.id).await, Err(EngineError::NoContainer(_))));
}

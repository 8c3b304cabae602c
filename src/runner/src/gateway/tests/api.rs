//! What the API says of itself.

use super::*;

#[tokio::test]
async fn the_description_names_every_path() {
    staged(Deadlines::USUAL, async |stage| {
        let described = stage.get("/openapi.json").await;
        let mut lines = Vec::new();
        for (path, methods) in described["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                let responses = operation["responses"].as_object().unwrap();
                let statuses: Vec<&str> = responses.keys().map(String::as_str).collect();
                lines.push(format!("{} {path} -> {}", method.to_uppercase(), statuses.join(" ")));
            }
        }
        lines.sort_by(|a, b| a.split(' ').nth(1).cmp(&b.split(' ').nth(1)).then(a.cmp(b)));
        insta::assert_snapshot!(lines.join("\n"));
        // The page that people read has all of them too.
        let page = include_str!("../../../../../docs/api.md");
        for line in &lines {
            let request = line.split(" ->").next().unwrap().replace("/api/v1", "");
            assert!(page.contains(&format!("`{request}")), "docs/api.md does not have {request}");
        }
    })
    .await;
}

#[tokio::test]
async fn every_schema_that_is_named_is_there() {
    staged(Deadlines::USUAL, async |stage| {
        let described = stage.get("/openapi.json").await;
        let text = described.to_string();
        let schemas = described["components"]["schemas"].as_object().unwrap();
        let named: Vec<&str> =
            text.split("#/components/schemas/").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
        assert!(named.len() > 20);
        for name in named {
            assert!(schemas.contains_key(name), "{name}");
        }
    })
    .await;
}

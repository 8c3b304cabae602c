//! The container is what was ordered, and nothing is left on the engine.

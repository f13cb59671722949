//! Services, reconcilers and HTTP: API, portal, proxy, tunnel

fn main() {}

"""What the theorems say, as code: worlds of the lower bound, confounded worlds, decision processes, guarantees."""

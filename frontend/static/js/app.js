// Everything a page may use; each module looks for its own `data-*` hooks and does nothing without them.
import "./toggle.js";
import "./times.js";
import "./live.js";
import "./log.js";
import "./confirm.js";
import "./forms.js";

// The same package, required.
import sluice = require("@sluicehq/client");

const one: sluice.Sluice = new sluice.Sluice();
one.close();

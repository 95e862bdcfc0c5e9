"use strict";

exports.Sluice = require("./lib/sluice.js").Sluice;

// Stands in for databases and telemetry that Azurite can use and never does here.
module.exports = new Proxy(class {}, { get: (target, name) => (name in target ? target[name] : module.exports) });

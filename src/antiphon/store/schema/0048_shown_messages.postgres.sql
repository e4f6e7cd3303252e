CREATE INDEX deliveries_in_parts ON deliveries (channel, recipient, id) WHERE parts LIKE '%,%';
